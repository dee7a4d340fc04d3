//go:build cuda

package cudatest

import (
	"fmt"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// promptFormats are the formats of experts with kernels for a prompt.
var promptFormats = append([]kernels.DType{kernels.BF16, kernels.F16, kernels.MXFP4}, streamedFormats...)

// ofPrompt gives the ops the prefill class.
func (m *mixture) ofPrompt() *mixture {
	for on := range 2 {
		m.gateUp[on].Class, m.down[on].Class = kernels.Prefill, kernels.Prefill
	}
	return m
}

// The experts of a prompt are the host's, in all formats, for numbers of rows at which kernels change, with gpt-oss's
// biases and limit and without, and with GELU. Each op is compared alone, over inputs that are exact in 16 bits.
func TestCUDAPromptExperts(t *testing.T) {
	for _, dtype := range promptFormats {
		t.Run(fmt.Sprint(dtype), func(t *testing.T) {
			b := newBoth(t)
			for i, rows := range []int{1, 9, 60, 130, 420} {
				hidden, inner := 512, []int{256, 768}[i%2]
				if !dtype.Quantised() {
					hidden, inner = 64*(1+b.r.IntN(17)), 64*(1+b.r.IntN(9))
				}
				m := newMixture(b, dtype, rows, hidden, inner, 8, 3).ofPrompt()
				compare := m.compare
				if dtype.Quantised() {
					compare = m.nearHost
				}
				name := fmt.Sprintf("%d rows of %d to %d", rows, hidden, inner)
				compare(name)
				for on := range 2 {
					m.gateUp[on].Activation = kernels.GELUTanh
				}
				compare(name + ", with GELU")
				for on := range 2 {
					m.gateUp[on].Activation = kernels.SiLU
				}
				m.biased(rows%2 == 1)
				compare(name + ", with biases")
			}
		})
	}
}

// nearHost compares the ops one by one, whose weights are rounded to binary16 on the GPU.
func (m *mixture) nearHost(name string) {
	m.t.Helper()
	m.routed(name, m.rows)
	m.run(func(on int) device.Op { return m.gateUp[on] })
	m.near(name+": gateup", twin{m.gateUp[0].Out, m.gateUp[1].Out}, nil, 4*roundedWeights)
	in, x := put(m.both, m.normal(m.rows*m.route[0].Chosen.Used*m.inner, 1)), put(m.both, m.values)
	m.run(func(on int) device.Op {
		o := m.down[on]
		o.In, o.X = in[on], x[on]
		return o
	})
	m.near(name+": down", x, m.values, 2*roundedWeights)
}

// A prompt's row has the same bits alone and in any chunk, by kernels of any size, and whether the gates hand their
// results over or not.
func TestCUDAPromptExpertsInAnyChunk(t *testing.T) {
	defer func() { tune.GroupedTokens = 0 }()
	for _, dtype := range promptFormats {
		t.Run(fmt.Sprint(dtype), func(t *testing.T) {
			b := newBoth(t)
			const rows, hidden, inner = 300, 512, 256
			m := newMixture(b, dtype, rows, hidden, inner, 8, 3).ofPrompt()
			run := func(first, n int, handsOver bool) []uint32 {
				x := b.load(1, bytesOf(slices.Concat(m.values[first*hidden:(first+n)*hidden], make([]float32, hidden))))
				route, gateUp, down := m.route[1], m.gateUp[1], m.down[1]
				route.X, route.T, gateUp.X, gateUp.T, down.X, down.T = x, n, x, n, x, n
				gateUp.HandsOver, down.InputIsRounded = handsOver, handsOver
				b.onGPU(route, gateUp, down)
				got := read[uint32](b, 1, x)
				b.equal("what follows", got[n*hidden:], make([]uint32, hidden))
				return got[:n*hidden]
			}
			tune.GroupedTokens = 0
			want := run(0, rows, true)
			for i, n := range []int{1, 2, 7, 8, 9, 17, 64, 150, rows} {
				for _, tune.GroupedTokens = range []int{0, 56, 208} {
					first := b.r.IntN(rows - n + 1)
					got := run(first, n, i%2 == 0)
					b.equal(fmt.Sprintf("%d rows from %d on, tiles of %d", n, first, tune.GroupedTokens), got,
						want[first*hidden:(first+n)*hidden])
				}
			}
		})
	}
}
