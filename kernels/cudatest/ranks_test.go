//go:build cuda

package cudatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	fatbin "reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// ranksRig is the memory of exchanges between all GPUs of the machine, and a stream.
type ranksRig struct {
	t   testing.TB
	n   int
	dev *device.Ranks
	set *device.RankSet
	s   device.Stream
}

// newRanksRig opens up to eight GPUs until the test ends. With one GPU the test is skipped.
func newRanksRig(t testing.TB) *ranksRig {
	t.Helper()
	g := &ranksRig{t: t}
	var gpus []*cuda.Device
	for len(gpus) < device.MaxRanks {
		d, err := cuda.New(len(gpus), fatbin.Fatbin)
		if errors.Is(err, device.ErrBadBuffer) {
			break
		}
		g.must(err)
		t.Cleanup(func() { g.must(d.Close()) })
		gpus = append(gpus, d)
	}
	if g.n = len(gpus); g.n < 2 {
		t.Skip("this test wants two NVIDIA GPUs that can address each other's memory")
	}
	var err error
	g.dev, err = cuda.NewRanks(gpus, nil)
	g.must(err)
	g.set = g.dev.Capabilities().Ranks
	g.s, err = g.dev.NewStream()
	g.must(err)
	t.Cleanup(func() { g.must(g.s.Destroy()) })
	return g
}

func (g *ranksRig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// load copies values of its own to each GPU.
func (g *ranksRig) load(of func(rank int) []float32) device.Buffer {
	g.t.Helper()
	var data [][]byte
	for rank := range g.n {
		data = append(data, bytesOf(of(rank)))
	}
	b, err := g.set.LoadEach(data)
	g.must(err)
	g.t.Cleanup(func() { g.must(g.dev.Free(b)) })
	return b
}

// filled returns n copies of v.
func filled(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

// fresh returns an exchange of random values with the rows that every GPU has to get.
func (g *ranksRig) fresh(rows, width int, adds bool) (op kernels.Exchange, whole []float32) {
	whole = make([]float32, rows*width)
	for i := range whole {
		whole[i] = rand.Float32() - 0.5
	}
	cols := kernels.PartOf(width, g.n)
	op = kernels.Exchange{Signals: g.set.Signals, T: rows, Width: width, PartCols: cols, Ranks: g.n,
		All: g.load(func(int) []float32 { return filled(rows*width, 9) }),
		Part: g.load(func(rank int) (part []float32) {
			for t := range rows {
				part = append(part, whole[t*width+kernels.PartStart(width, g.n, rank):][:cols]...)
			}
			return part
		})}
	if adds {
		op.X = g.load(func(int) []float32 { return filled(rows*width, 3) })
		op.Bias = g.load(func(int) []float32 { return filled(width, 0.25) })
	}
	return op, whole
}

// compare compares a buffer of every GPU with the values that it should have.
func (g *ranksRig) compare(name string, b device.Buffer, want []float32) {
	g.t.Helper()
	got := make([]float32, len(want))
	for rank := range g.n {
		g.must(g.set.Read(rank, bytesOf(got), b))
		for i := range want {
			if got[i] != want[i] {
				g.t.Fatalf("%s of GPU %d: element %d is %v, wants %v", name, rank, i, got[i], want[i])
			}
		}
	}
}

// Every GPU gets the columns of all, eagerly and from a graph of many exchanges that is replayed again and again.
func TestCUDAExchange(t *testing.T) {
	g := newRanksRig(t)
	for _, rows := range []int{1, 7, 400} {
		for _, width := range []int{16, 257, 4096, 11008} {
			for _, adds := range []bool{false, true} {
				op, whole := g.fresh(rows, width, adds)
				g.must(g.s.Launch(op))
				g.must(g.s.Synchronize())
				g.compare("all", op.All, whole)
				if !adds {
					continue
				}
				x := filled(len(whole), 3)
				for i := range x {
					x[i] = (x[i] + 0.25) + whole[i]
				}
				g.compare("x", op.X, x)
			}
		}
	}
}

// A graph of exchanges in turn adds up the same on every GPU however often it is replayed.
func TestCUDAExchangeReplays(t *testing.T) {
	g := newRanksRig(t)
	const exchanges, replays = 64, 50
	var ops [2]kernels.Exchange
	var whole [2][]float32
	ops[0], whole[0] = g.fresh(1, 4096, true)
	ops[1], whole[1] = g.fresh(3, 1000, true)
	exec := g.captured(exchanges, ops[:])
	for range replays {
		g.must(g.s.Replay(exec))
	}
	g.must(g.s.Synchronize())
	for i, op := range ops {
		x := filled(len(whole[i]), 3)
		for range exchanges / 2 * replays {
			for j := range x {
				x[j] = (x[j] + 0.25) + whole[i][j]
			}
		}
		g.compare("x", op.X, x)
	}
}

// captured returns a graph of n ops, those of list in turn.
func (g *ranksRig) captured(n int, list []kernels.Exchange) device.Exec {
	g.t.Helper()
	runtime.LockOSThread() // a capture must end on the thread that began it
	defer runtime.UnlockOSThread()
	g.must(g.s.BeginCapture())
	for i := range n {
		g.must(g.s.Launch(list[i%len(list)]))
	}
	graph, err := g.s.EndCapture()
	g.must(err)
	exec, err := graph.Instantiate()
	g.must(err)
	g.t.Cleanup(func() { g.must(errors.Join(exec.Destroy(), graph.Destroy())) })
	g.must(g.s.Upload(exec))
	return exec
}

// BenchmarkExchange measures an exchange in a graph of 64, by rows and columns.
func BenchmarkExchange(b *testing.B) {
	const exchanges = 64
	for _, rows := range []int{1, 8, 64, 400} {
		for _, width := range []int{4096, 11008, 32000} {
			b.Run(fmt.Sprintf("%dx%d", rows, width), func(b *testing.B) {
				g := newRanksRig(b)
				first, _ := g.fresh(rows, width, true)
				second, _ := g.fresh(rows, width, false)
				exec := g.captured(exchanges, []kernels.Exchange{first, second})
				g.must(g.s.Replay(exec))
				g.must(g.s.Synchronize())
				begun := time.Now()
				for range b.N {
					g.must(g.s.Replay(exec))
				}
				g.must(g.s.Synchronize())
				each := time.Since(begun) / time.Duration(b.N*exchanges)
				b.ReportMetric(float64(each.Nanoseconds())/1000, "us/exchange")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
