//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// A layer's experts as one op have the bits of the three ops, in all formats: narrow and wide experts, with biases and
// without, and again over what the first launch left.
func TestCUDAExpertsTogether(t *testing.T) {
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			for j, shape := range [][2]int{{512, 256}, {2048, 768}, {2304, 2304}} {
				for _, rows := range []int{1, 2 + (i+j)%7, 20} {
					if j == 2 && rows == 20 {
						continue // the widest experts take a while to fill
					}
					m := newMixture(b, f.dtype, rows, shape[0], shape[1], 8, 4)
					m.biased(j == 1)
					m.together(fmt.Sprintf("%s, %d rows, %v", f.name, rows, shape))
				}
			}
		})
	}
}

// layer returns the mixture's ops on the GPU over rows of its own.
func (m *mixture) layer() kernels.Experts {
	o := kernels.Experts{Route: m.route[1], GateUp: m.gateUp[1], Down: m.down[1]}
	x := m.load(1, bytesOf(m.values))
	o.Route.X, o.GateUp.X, o.Down.X = x, x, x
	return o
}

// together compares a layer as one op with its three ops.
func (m *mixture) together(name string) {
	m.t.Helper()
	apart := m.layer()
	poison := func() {
		c, work := apart.Route.Chosen, apart.Down.Workspace
		for _, buffer := range []device.Buffer{apart.GateUp.Out, work.Results, c.Weights} {
			m.onGPU(kernels.Fill{Data: buffer, Value: kernels.Poison})
		}
	}
	poison()
	m.onGPU(apart.Route, apart.GateUp, apart.Down)
	left := func(o kernels.Experts) [][]uint32 {
		return [][]uint32{read[uint32](m.both, 1, o.Route.Chosen.IDs), read[uint32](m.both, 1, o.Route.Chosen.Weights),
			read[uint32](m.both, 1, o.GateUp.Out), read[uint32](m.both, 1, o.Route.X)}
	}
	want := left(apart)
	for range 2 {
		poison()
		one := m.layer()
		m.onGPU(one)
		for i, got := range left(one) {
			what := []string{"ids", "weights", "gates", "rows"}[i]
			m.equal(fmt.Sprintf("%s: %s", name, what), got, want[i])
		}
	}
}

// A row of padding alone leaves the rows as they are.
func TestCUDAExpertsTogetherOfPadding(t *testing.T) {
	b := newBoth(t)
	m := newMixture(b, kernels.Q4_K, 1, 512, 256, 8, 4)
	o := m.layer()
	none := b.load(1, bytesOf([]int32{-1}))
	o.Route.RowIndex, o.GateUp.RowIndex, o.Down.RowIndex = none, none, none
	b.onGPU(o)
	b.equal("rows", read[uint32](b, 1, o.Route.X), bits32(m.values))
}
