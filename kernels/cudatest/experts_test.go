//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// mixture is a layer's experts on both, over rows of the residual stream.
type mixture struct {
	*both
	rows, hidden, inner int
	x                   twin
	values              []float32 // of x
	route               [2]kernels.Route
	gateUp              [2]kernels.ExpertGateUp
	down                [2]kernels.ExpertDown
}

// newMixture returns random experts in a format. Norm weights are powers of two, so rounded inputs are those of the
// host.
func newMixture(b *both, dtype kernels.DType, rows, hidden, inner, experts, used int) *mixture {
	m := &mixture{both: b, rows: rows, hidden: hidden, inner: inner, values: b.normal(rows*hidden, 2)}
	m.x = put(b, m.values)
	norm, router := put(b, b.powers(hidden)), put(b, b.normal(experts*hidden, 1/math.Sqrt(float64(hidden))))
	gate, up := b.matrix(dtype, experts*inner, hidden), b.matrix(dtype, experts*inner, hidden)
	down := b.matrix(dtype, experts*hidden, inner)
	ids, weights, out := b.poisoned(rows*used), b.poisoned(rows*used), b.poisoned(rows*used*inner)
	segments := b.poisoned(int(kernels.SegmentsBytes(rows, used, experts) / 4))
	results, logits := b.poisoned(rows*used*hidden), b.poisoned(rows*experts)
	rounded := b.poisoned(int(kernels.ExpertsRoundedBytes(rows, used, experts, hidden) / 4))
	gated := b.poisoned(int(kernels.ExpertsRoundedBytes(rows, used, experts, inner) / 4))
	arrivals := put(b, make([]uint32, rows))
	for on := range 2 {
		chosen := kernels.Chosen{IDs: ids[on], Weights: weights[on], Segments: segments[on], Experts: experts,
			Used: used}
		work := kernels.ExpertWorkspace{Results: results[on], Rounded: rounded[on], Gated: gated[on]}
		m.route[on] = kernels.Route{X: m.x[on], Norm: norm[on], Router: router[on], Chosen: chosen, T: rows,
			Hidden: hidden, Eps: 1e-5,
			Workspace: kernels.RouteWorkspace{Logits: logits[on], Arrivals: arrivals[on]}}
		m.gateUp[on] = kernels.ExpertGateUp{X: m.x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Chosen: chosen,
			Out: out[on], Workspace: work, Eps: 1e-5, T: rows}
		m.down[on] = kernels.ExpertDown{Down: down[on], In: out[on], X: m.x[on], Chosen: chosen, Workspace: work,
			T: rows}
	}
	return m
}

// routed launches the router on both, and fails unless both choose the same experts, with weights that are close, for
// the first rows, and leave alone what comes after them.
func (m *mixture) routed(name string, rows int) {
	m.t.Helper()
	m.run(func(on int) device.Op { return m.route[on] })
	c := [2]kernels.Chosen{m.route[0].Chosen, m.route[1].Chosen}
	m.chosen(name, rows)
	got, want, n := read[float32](m.both, 1, c[1].Weights), read[float32](m.both, 0, c[0].Weights), rows*c[0].Used
	m.closeTo(name+": weights", got[:n], want[:n], func(int) float64 { return 1e-5 }, 1e-4)
	m.equal(name+": weights of padding", bits32(got[n:]), bits32(want[n:]))
}

// chosen fails unless both have chosen the same experts for the first rows, and left alone what comes after them. An
// expert may be another one if the logits of both are within the rounding of a sum.
func (m *mixture) chosen(name string, rows int) {
	m.t.Helper()
	logits := read[float32](m.both, 1, m.route[1].Workspace.Logits)
	got, want := read[int32](m.both, 1, m.route[1].Chosen.IDs), read[int32](m.both, 0, m.route[0].Chosen.IDs)
	for i, id := range want {
		if got[i] == id {
			continue
		}
		row := i / m.route[0].Chosen.Used
		if row >= rows || got[i] < 0 || int(got[i]) >= m.route[0].Chosen.Experts {
			m.t.Fatalf("%s: expert %d of row %d is %d, wants %d", name, i%m.route[0].Chosen.Used, row, got[i], id)
		}
		of := logits[row*m.route[0].Chosen.Experts:]
		if apart := math.Abs(float64(of[got[i]] - of[id])); !(apart < 1e-5) {
			m.t.Fatalf("%s: row %d has expert %d, wants %d: their logits are %v apart", name, row, got[i], id, apart)
		}
	}
}

// The router of a GPU chooses the experts that the host chooses, in every form that a family has, for any number of
// rows, and also by a row index, whose padding is left alone.
func TestCUDARoute(t *testing.T) {
	b := newBoth(t)
	for _, rows := range []int{1, 2, 4, 7, 33, 130} {
		for _, experts := range []int{8, 64, 128, 512} {
			for form, change := range map[string]func(o *kernels.Route, on int, bias, choice twin){
				"softmax":    func(*kernels.Route, int, twin, twin) {},
				"normalised": func(o *kernels.Route, _ int, _, _ twin) { o.Normalise, o.Scale = true, 2.5 },
				"of the chosen": func(o *kernels.Route, on int, bias, _ twin) {
					o.Scoring, o.Bias = kernels.SoftmaxOfChosen, bias[on]
				},
				"with a scale of each expert": func(o *kernels.Route, on int, _, choice twin) {
					o.Normalise, o.ExpertScales = true, choice[on]
				},
				"groups": func(o *kernels.Route, _ int, _, _ twin) { o.Groups, o.GroupsUsed = 4, 2 },
				"corrected": func(o *kernels.Route, on int, _, choice twin) {
					o.Scoring, o.Choice, o.Normalise, o.Groups, o.GroupsUsed, o.BestTwo = kernels.Sigmoid, choice[on],
						true, 4, 2, true
				},
			} {
				m := newMixture(b, kernels.BF16, rows, 256, 16, experts, 4)
				bias, choice := put(b, b.normal(experts, 1)), put(b, b.normal(experts, 1))
				for on := range 2 {
					change(&m.route[on], on, bias, choice)
				}
				m.routed(fmt.Sprintf("%d rows, %d experts, %s", rows, experts, form), rows)
			}
		}
	}
	m := newMixture(b, kernels.BF16, 5, 256, 16, 64, 4)
	index := put(b, []int32{3, 0, 4, -1, -1})
	for on := range 2 {
		m.route[on].RowIndex = index[on]
	}
	m.routed("by a row index", 3)
}

// Of equal logits the smaller id comes first. Rows of NaN, as padding may have, take experts that exist and differ, in
// rising order.
func TestCUDARouteBreaksTies(t *testing.T) {
	b := newBoth(t)
	m := newMixture(b, kernels.BF16, 3, 256, 16, 64, 8)
	one := b.normal(256, 1)
	router, x := put(b, slices.Repeat(one, 64)), slices.Clone(m.values)
	for i := range 256 {
		x[256+i] = float32(math.NaN())
	}
	rows := put(b, x)
	for on := range 2 {
		m.route[on].Router, m.route[on].X = router[on], rows[on]
	}
	b.run(func(on int) device.Op { return m.route[on] })
	c := m.route[1].Chosen
	if got := read[int32](b, 1, c.IDs); !slices.Equal(got, slices.Repeat([]int32{0, 1, 2, 3, 4, 5, 6, 7}, 3)) {
		t.Errorf("%v", got)
	}
	m.same("experts", twin{m.route[0].Chosen.IDs, c.IDs})
}

// expertFormats are formats of experts with a kernel each, and a width that is whole blocks of it.
var expertFormats = []kernels.DType{kernels.BF16, kernels.F16, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
	kernels.Q8_0, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_XS, kernels.MXFP4, kernels.F8, kernels.G4_32,
	kernels.G4_64, kernels.G4_128}

// The experts of a GPU are the host's, in all formats, for 1 to 130 rows, with gpt-oss's biases and limit and without.
// Each op is compared alone, over inputs that are exact in bfloat16.
func TestCUDAExperts(t *testing.T) {
	for _, dtype := range expertFormats {
		t.Run(fmt.Sprint(dtype), func(t *testing.T) {
			b := newBoth(t)
			for _, rows := range []int{1, 2, 5, 8, 9, 33, 130} {
				hidden, inner := 512, 256
				if !dtype.Quantised() {
					hidden, inner = 16*(1+b.r.IntN(70)), 16*(1+b.r.IntN(20))
				}
				m := newMixture(b, dtype, rows, hidden, inner, 8, 3)
				m.compare(fmt.Sprintf("type %d, %d rows of %d to %d", dtype, rows, hidden, inner))
				m.biased(rows%2 == 1)
				m.compare(fmt.Sprintf("type %d, %d rows of %d to %d, with biases", dtype, rows, hidden, inner))
				for on := range 2 {
					m.gateUp[on].Limit, m.gateUp[on].Activation = 0, kernels.GELUTanh
				}
				m.compare(fmt.Sprintf("type %d, %d rows of %d to %d, with GELU", dtype, rows, hidden, inner))
			}
		})
	}
}

// biased gives the experts biases, and a limit.
func (m *mixture) biased(limit bool) {
	e := m.route[0].Chosen.Experts
	gate, up := put(m.both, m.normal(e*m.inner, 1)), put(m.both, m.normal(e*m.inner, 1))
	down := put(m.both, m.normal(e*m.hidden, 1))
	for on := range 2 {
		m.gateUp[on].GateBias, m.gateUp[on].UpBias, m.down[on].Bias = gate[on], up[on], down[on]
		if limit {
			m.gateUp[on].Limit = 1
		}
	}
}

// compare compares the ops one by one.
func (m *mixture) compare(name string) {
	m.t.Helper()
	m.routed(name, m.rows)
	m.run(func(on int) device.Op { return m.gateUp[on] })
	places := m.rows * m.route[0].Chosen.Used
	m.rowsClose(name+": gateup", twin{m.gateUp[0].Out, m.gateUp[1].Out}, m.inner, 8*sums(m.hidden), 1e-4, 1e-4)
	in, x := put(m.both, m.normal(places*m.inner, 1)), put(m.both, m.values)
	m.run(func(on int) device.Op {
		o := m.down[on]
		o.In, o.X = in[on], x[on]
		return o
	})
	m.rowsClose(name+": down", x, m.hidden, 8*sums(m.inner), 1e-4, 1e-4)
}

// A row's experts, their weights and their results have the same bits alone and beside others, by consecutive rows and
// by a row index, whose padding is left alone, in both classes.
func TestCUDAExpertsAreBatchInvariant(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.Q4_K, kernels.Q6_K, kernels.Q8_0,
		kernels.MXFP4} {
		t.Run(fmt.Sprint(dtype), func(t *testing.T) {
			b := newBoth(t)
			const rows, hidden, inner = 90, 512, 256
			m := newMixture(b, dtype, rows, hidden, inner, 8, 3)
			b.onGPU(m.route[1], m.gateUp[1], m.down[1])
			want := read[uint32](b, 1, m.x[1])
			for _, n := range []int{1, 2, 7, 8, 9, 17, 64} {
				for _, class := range []kernels.Class{kernels.Decode, kernels.Prefill} {
					first := b.r.IntN(rows - n + 1)
					x := b.load(1, bytesOf(slices.Concat(m.values[first*hidden:(first+n)*hidden], make([]float32,
						hidden))))
					route, gateUp, down := m.route[1], m.gateUp[1], m.down[1]
					route.X, route.T, gateUp.X, gateUp.T, down.X, down.T = x, n, x, n, x, n
					gateUp.Class, down.Class = class, class
					if class == kernels.Prefill { // without memory for an order of its own
						gateUp.Workspace.Rounded, down.Workspace.Rounded = device.Buffer{}, device.Buffer{}
					}
					if class == kernels.Decode { // with a row of padding
						list := b.load(1, bytesOf(append(counted(n), -1)))
						route.RowIndex, route.T, gateUp.RowIndex, gateUp.T, down.RowIndex, down.T = list, n+1, list,
							n+1, list, n+1
					}
					b.onGPU(route, gateUp, down)
					got := read[uint32](b, 1, x)
					b.equal(fmt.Sprintf("%d rows from %d on, %s", n, first, class), got[:n*hidden],
						want[first*hidden:(first+n)*hidden])
					b.equal("padding", got[n*hidden:], make([]uint32, hidden))
				}
			}
		})
	}
}

// A captured layer routes afresh: replayed over other rows it gives the bits of an eager run over them, which are not
// those of the experts that the captured rows chose.
func TestCUDAReplayRoutesAfresh(t *testing.T) {
	b := newBoth(t)
	for _, rows := range []int{1, 8, 40} {
		const hidden, inner = 512, 256
		m := newMixture(b, kernels.BF16, rows, hidden, inner, 64, 4)
		s := b.streams[1]
		x := b.load(1, bytesOf(m.values))
		route, gateUp, down := m.route[1], m.gateUp[1], m.down[1]
		route.X, gateUp.X, down.X = x, x, x
		b.onGPU(route, gateUp, down) // loads the kernels, and chooses
		frozen := read[int32](b, 1, route.Chosen.IDs)
		exec := b.capture(route, gateUp, down)
		for range 5 {
			other := b.normal(rows*hidden, 2)
			source := b.load(1, bytesOf(other))
			eager := b.load(1, bytesOf(other))
			r, gu, d := route, gateUp, down
			r.X, gu.X, d.X = eager, eager, eager
			b.onGPU(r, gu, d)
			want, chosen := read[uint32](b, 1, eager), read[int32](b, 1, route.Chosen.IDs)
			b.onGPU(kernels.GatherRows{X: source, Rows: kernels.Rows{Sample: b.load(1, bytesOf(counted(rows)))}, Out: x,
				Index: b.load(1, make([]byte, 4*rows)), Cols: hidden, T: rows, N: rows})
			b.must(s.Replay(exec))
			b.must(s.Synchronize())
			b.equal(fmt.Sprintf("%d rows", rows), read[uint32](b, 1, x), want)
			if slices.Equal(chosen, frozen) {
				t.Errorf("%d rows: other rows choose the same experts, so the test proves nothing", rows)
			}
		}
		b.must(exec.Destroy())
	}
}
