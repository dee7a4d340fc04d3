//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/internal/tune"
)

// Experts' kernels with a ring in shared memory give the bits of those without, for narrow and wide experts, and also if
// a block has the units of several segments.
func TestCUDAExpertsRing(t *testing.T) {
	defer func(ring bool, n int) { tune.CodesRing, tune.MaxPersistentBlocks = ring, n }(
		tune.CodesRing, tune.MaxPersistentBlocks)
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			for j, shape := range [][2]int{{512, 256}, {2048, 768}, {2304, 2304}} {
				for _, rows := range []int{1, 2 + (i+j)%7, 20} {
					if j == 2 && rows != 2+(i+j)%7 {
						continue // the widest experts take a while to fill
					}
					m := newMixture(b, f.dtype, rows, shape[0], shape[1], 8, 4)
					m.biased(j == 1)
					m.rings(fmt.Sprintf("%s, %d rows, %v", f.name, rows, shape))
				}
			}
		})
	}
}

// rings compares the results of gates and of layers.
func (m *mixture) rings(name string) {
	m.t.Helper()
	var want [][]uint32
	for i, blocks := range []int{math.MaxInt32, math.MaxInt32, 3} {
		tune.CodesRing, tune.MaxPersistentBlocks = i > 0, blocks
		x := m.load(1, bytesOf(m.values))
		route, gateUp, down := m.route[1], m.gateUp[1], m.down[1]
		route.X, gateUp.X, down.X = x, x, x
		m.onGPU(kernels.Fill{Data: gateUp.Out, Value: kernels.Poison}, route, gateUp, down)
		got := [][]uint32{read[uint32](m.both, 1, gateUp.Out), read[uint32](m.both, 1, x)}
		if i == 0 {
			want = got
		}
		m.equal(fmt.Sprintf("%s, %d blocks: gates", name, blocks), got[0], want[0])
		m.equal(fmt.Sprintf("%s, %d blocks: layer", name, blocks), got[1], want[1])
	}
}
