//go:build cuda

package cudatest

import (
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// handingRanks is a feed-forward and the gates of a second one, of which each GPU computes a part.
type handingRanks struct {
	*ranksRig
	rows, hidden, inner    int
	gate, up, down         kernels.Weight
	norm                   device.Buffer
	part, branch           device.Buffer
	innerRows, gathered    device.Buffer
	roundedHidden, rounded device.Buffer
	partials               device.Buffer
}

func (g *ranksRig) handing(rows, hidden, inner int) *handingRanks {
	g.t.Helper()
	alloc := func(bytes int64) device.Buffer {
		b, err := g.dev.Alloc(bytes)
		g.must(err)
		g.t.Cleanup(func() { g.must(g.dev.Free(b)) })
		return b
	}
	n := g.n
	return &handingRanks{ranksRig: g, rows: rows, hidden: hidden, inner: inner, gate: g.randomWeight(inner/n, hidden),
		up: g.randomWeight(inner/n, hidden), down: g.randomWeight(hidden/n, inner), norm: g.shared(hidden, 1)[0],
		part: alloc(int64(4 * rows * inner / n)), branch: alloc(int64(4 * rows * hidden / n)),
		innerRows: alloc(int64(4 * rows * inner)), gathered: alloc(int64(4 * rows * hidden)),
		roundedHidden: alloc(kernels.RoundedBytes(rows, hidden)), rounded: alloc(kernels.RoundedBytes(rows, inner)),
		partials: alloc(max(kernels.PartialsBytes(rows, hidden, inner/n, inner/n), kernels.PartialsBytes(rows, inner, hidden/n)))}
}

// run adds the feed-forward to x and leaves the second gates of all GPUs in `into`.
func (r *handingRanks) run(x, into device.Buffer, hands bool) {
	r.t.Helper()
	of := func(part, all device.Buffer, width int) kernels.Exchange {
		return kernels.Exchange{Part: part, All: all, Signals: r.set.Signals, T: r.rows, Width: width, PartCols: width / r.n,
			Ranks: r.n}
	}
	gate := kernels.GateUp{X: x, Norm: r.norm, Gate: r.gate, Up: r.up, Out: r.part, T: r.rows, Eps: 1e-5,
		Class: kernels.Prefill, Workspace: kernels.Workspace{Rounded: r.roundedHidden, Partials: r.partials},
		Spread: of(r.part, r.innerRows, r.inner)}
	down := kernels.Projection{W: r.down, In: r.innerRows, X: r.branch, Store: true, T: r.rows, Class: kernels.Prefill,
		Workspace: kernels.Workspace{Rounded: r.rounded, Partials: r.partials}, Spread: of(r.branch, r.gathered, r.hidden)}
	down.Spread.X = x
	second := gate
	second.Spread.All = into
	if hands {
		gate.Handover = kernels.Handover{Rounded: r.rounded, Ranks: r.n}
		gate.Spread.Rounded = r.rounded
		down.Handover = kernels.Handover{InputIsRounded: true, Rounded: r.roundedHidden, Norm: r.norm, Ranks: r.n}
		down.Spread.Rounded, down.Spread.Squares = r.roundedHidden, true
		second.Handover.InputIsRounded = true
	}
	r.must(r.s.Launch(gate))
	r.must(r.s.Launch(down))
	r.must(r.s.Launch(second))
	if hands {
		r.must(r.s.Launch(kernels.Complete{X: x, Signals: r.set.Signals, T: r.rows, Width: r.hidden, Ranks: r.n}))
	}
	r.must(r.s.Synchronize())
}

// Rounded parts that each GPU hands to all give what float32 rows give, but for the order in which squares are added,
// on all GPUs the same. Repeated runs find what an exchange overwrote too early.
func TestCUDARanksHandPartsOver(t *testing.T) {
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			g := newRanksRig(t, link)
			for _, rows := range []int{5, 77, 400, 700, 1536} { // from 700 on by whole output tiles
				r := g.handing(rows, 128*g.n*2, 128*g.n*5)
				x := g.shared(rows*r.hidden, 4)
				into := g.shared(rows*r.inner, 4)
				r.run(x[0], into[0], false)
				for i := 1; i < 4; i++ {
					r.run(x[i], into[i], true)
				}
				g.compareBuffers("x", x[1:], rows*r.hidden)
				g.compareBuffers("gates", into[1:], rows*r.inner)
				g.near("x", x[0], x[1], rows*r.hidden)
				g.near("gates", into[0], into[1], rows*r.inner)
			}
		})
	}
}

// near compares two buffers of the first GPU but for rounding.
func (g *ranksRig) near(name string, a, b device.Buffer, n int) {
	g.t.Helper()
	x, y := make([]float32, n), make([]float32, n)
	g.must(g.set.Read(0, bytesOf(x), a))
	g.must(g.set.Read(0, bytesOf(y), b))
	most, differ := 0.0, 0.0
	for i := range x {
		most, differ = max(most, math.Abs(float64(x[i]))), max(differ, math.Abs(float64(x[i])-float64(y[i])))
	}
	if !(differ <= 2e-3*most) || most == 0 {
		g.t.Errorf("%s: handed over they differ by %g of %g", name, differ, most)
	}
}
