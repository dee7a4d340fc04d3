//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// ranksMixture is a layer's experts on several GPUs, of which each has a part, and the rows that all have.
type ranksMixture struct {
	*ranksRig
	rows, hidden, inner, used int

	x     []device.Buffer // two copies
	route kernels.Route
	gates kernels.ExpertGateUp
	down  kernels.ExpertDown
}

func (g *ranksRig) newMixture(dtype kernels.DType, rows, hidden, inner int) *ranksMixture {
	const experts, used = 16, 8
	m := &ranksMixture{ranksRig: g, rows: rows, hidden: hidden, inner: inner, used: used, x: g.shared(rows*hidden, 2)}
	zeros := func(n int) device.Buffer { return g.load(func(int) []float32 { return make([]float32, n) }) }
	width, cols, norm := kernels.PartOf(inner, g.n), kernels.PartOf(hidden, g.n), g.shared(hidden, 1)[0]
	chosen := kernels.Chosen{IDs: zeros(rows * used), Weights: zeros(rows * used), Experts: experts, Used: used,
		Segments: zeros(int(kernels.SegmentsBytes(rows, used, experts) / 4))}
	work := kernels.ExpertWorkspace{Results: zeros(rows * used * cols)}
	m.route = kernels.Route{X: m.x[0], Norm: norm, Router: g.shared(experts*hidden, 1)[0], Chosen: chosen, T: rows,
		Hidden: hidden, Eps: 1e-5,
		Workspace: kernels.RouteWorkspace{Logits: zeros(rows * experts), Arrivals: zeros(rows)}}
	m.gates = kernels.ExpertGateUp{X: m.x[0], Norm: norm, Gate: g.stack(dtype, experts*width, hidden),
		Up: g.stack(dtype, experts*width, hidden), Chosen: chosen, Out: zeros(rows * used * width), Workspace: work,
		Eps: 1e-5, T: rows, GateBias: g.shared(experts*width, 1)[0], UpBias: g.shared(experts*width, 1)[0]}
	m.down = kernels.ExpertDown{Down: g.stack(dtype, experts*cols, inner), In: zeros(rows * used * inner),
		X: zeros(rows * cols), Chosen: chosen, Workspace: work, T: rows, Store: true,
		Bias: g.shared(experts*cols, 1)[0]}
	return m
}

// stack returns a packed weight of random values, of which each GPU has a part of its own.
func (g *ranksRig) stack(dtype kernels.DType, rows, cols int) kernels.Weight {
	g.t.Helper()
	if dtype == kernels.BF16 {
		return g.randomWeight(rows, cols)
	}
	var each [][]byte
	mask := byte(0x2f) // a scale is at most 0.12 as a binary16
	if dtype == kernels.MXFP4 {
		mask = 0x7f // at most 1
	}
	for range g.n {
		part := make([]byte, kernels.PackedBytes(dtype, rows, cols))
		for i := range part {
			part[i] = byte(rand.Uint32()) & mask
		}
		each = append(each, part)
	}
	data, err := g.set.LoadEach(each)
	g.must(err)
	g.t.Cleanup(func() { g.must(g.dev.Free(data)) })
	return kernels.Weight{Data: data, DType: dtype, Layout: kernels.Codes, Rows: rows, Cols: cols}
}

func (m *ranksMixture) exchange(part, all device.Buffer, rows, width int) kernels.Exchange {
	return kernels.Exchange{Part: part, All: all, Signals: m.set.Signals, T: rows, Width: width,
		PartCols: kernels.PartOf(width, m.n), Ranks: m.n}
}

// spreadGates returns the gates with an exchange of their results.
func (m *ranksMixture) spreadGates(all device.Buffer) kernels.ExpertGateUp {
	op := m.gates
	op.Spread = m.exchange(op.Out, all, m.rows*m.used, m.inner)
	return op
}

// spreadDown returns the down projection with an exchange of its sums.
func (m *ranksMixture) spreadDown(x device.Buffer) kernels.ExpertDown {
	op := m.down
	op.Spread = m.exchange(op.X, m.load(func(int) []float32 { return make([]float32, m.rows*m.hidden) }), m.rows, m.hidden)
	op.Spread.X = x
	return op
}

// Experts that give their results to all GPUs in one kernel leave the bits of the experts and an exchange after them. A
// row of padding leaves the residual stream alone, and the exchanges after it are right.
func TestCUDASpreadExperts(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			g := newRanksRig(t, link)
			for _, dtype := range []kernels.DType{kernels.BF16, kernels.Q8_0, kernels.Q4_K, kernels.MXFP4} {
				for _, rows := range []int{1, 3} {
					for _, inner := range []int{256, 768, 2048} {
						g.spreadExperts(fmt.Sprintf("%v, %d rows, width %d", dtype, rows, inner),
							g.newMixture(dtype, rows, 1024, inner))
					}
				}
			}
		})
	}
}

func (g *ranksRig) spreadExperts(name string, m *ranksMixture) {
	g.t.Helper()
	n := m.rows * m.used * m.inner
	inner := g.shared(n, 2)
	m.down.In = inner[0]
	exchange, adds, spread := m.spreadGates(inner[0]).Spread, m.spreadDown(m.x[0]).Spread, m.spreadDown(m.x[1])
	taken, takes := m.spreadGates(inner[1]), spread
	takes.In = inner[1]
	takes.TakeFrom(&taken)
	alike := func() {
		g.must(g.s.Launch(m.route))
		g.alike(name+": inner", inner, n, m.gates, exchange, m.spreadGates(inner[1]))
		g.alike(name+": x", m.x, m.rows*m.hidden, m.down, adds, spread)
		g.alike(name+": x, taken", m.x, m.rows*m.hidden, m.gates, exchange, taken, takes, m.down, adds)
	}
	alike()
	if m.rows == 1 {
		m.padding(name, m.spreadGates(inner[1]), spread)
		m.padding(name+", taken", taken, takes)
		alike()
	}
}

// padding launches the experts of a row that is none.
func (m *ranksMixture) padding(name string, gates kernels.ExpertGateUp, down kernels.ExpertDown) {
	m.t.Helper()
	was := make([]float32, m.hidden)
	m.must(m.set.Read(0, bytesOf(was), m.x[1]))
	route := m.route
	route.RowIndex = m.load(func(int) []float32 { return []float32{math.Float32frombits(math.MaxUint32)} }) // -1
	m.must(m.s.Launch(route))
	for range 3 {
		m.must(m.s.Launch(gates))
		m.must(m.s.Launch(down))
	}
	m.must(m.s.Synchronize())
	m.compare(name+": x of padding", m.x[1], was)
}

// A projection that takes what the gates of all GPUs send leaves the bits of the ops and exchanges one after another.
func TestCUDASpreadIsTaken(t *testing.T) {
	g := newRanksRig(t, cuda.PeerLink)
	const cols, hidden = 1024, 2048
	for _, inner := range []int{512, 4096, 11008} {
		part, hiddenPart := kernels.PartOf(inner, g.n), kernels.PartOf(hidden, g.n)
		all, x := g.shared(inner, 2), g.shared(hidden, 2)
		gate := kernels.GateUp{X: g.shared(cols, 1)[0], Norm: g.shared(cols, 1)[0], Gate: g.randomWeight(part, cols),
			Up: g.randomWeight(part, cols), Out: g.shared(part, 1)[0], T: 1, Eps: 1e-5, Class: kernels.Decode}
		down := kernels.Projection{W: g.randomWeight(hiddenPart, inner), X: g.shared(hiddenPart, 1)[0], T: 1,
			Class: kernels.Decode, Store: true}
		gates := func(i int) kernels.Exchange {
			return kernels.Exchange{Part: gate.Out, All: all[i], Signals: g.set.Signals, T: 1, Width: inner, PartCols: part,
				Ranks: g.n}
		}
		adds := func(i int) kernels.Exchange {
			return kernels.Exchange{Part: down.X, All: g.shared(hidden, 1)[0], X: x[i], Signals: g.set.Signals, T: 1,
				Width: hidden, PartCols: hiddenPart, Ranks: g.n}
		}
		sends, takes := gate, down
		sends.Spread = gates(1).TakenBy(down.W)
		takes.In, takes.Spread, takes.Before = all[1], adds(1), sends.Spread
		if !sends.Sends() {
			t.Fatal("the gates do not send")
		}
		down.In = all[0]
		g.alike("x", x, hidden, gate, gates(0), down, adds(0), sends, takes)
	}
}
