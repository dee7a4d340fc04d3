package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"reel.internal/reel/kernels/device"
)

// BenchmarkAttend measures the host's attention on one processor: the last rows of one sequence in the
// shapes of the embedded model and of Llama-3.2 1B. ns/key is the time for one key of one query head.
func BenchmarkAttend(b *testing.B) {
	for _, s := range []struct{ heads, kvHeads, d, positions, rows int }{
		{8, 2, 32, 20, 16}, {8, 2, 32, 1000, 1}, {8, 2, 32, 1000, 16}, {32, 8, 64, 1000, 1}, {32, 8, 64, 4000, 16},
	} {
		b.Run(fmt.Sprintf("heads=%d,d=%d,positions=%d,rows=%d", s.heads, s.d, s.positions, s.rows), func(b *testing.B) {
			h := device.NewHost(device.HostOptions{Workers: 1})
			defer h.Close()
			a := newHostAttend(b, h, rand.New(rand.NewPCG(1, 2)), KV{PageTokens: 16, Layers: 1, Heads: s.kvHeads,
				HeadDim: s.d}, s.heads, s.positions, s.rows)
			keys := 0
			for t := range s.rows {
				keys += s.heads * (s.positions - t)
			}
			for b.Loop() {
				a.Host(h)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
		})
	}
}
