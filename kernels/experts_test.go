package kernels

import (
	"errors"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// routed is a router's case, and what a plain loop in float64 makes of it.
type routed struct {
	Route
	logits []float64 // [T][Experts], of X, Norm and Router
}

// route returns a router over random rows.
func (g *rig) route(T, experts, used int) routed {
	const hidden = 40
	x, xv := g.random(T * hidden)
	norm, nv := g.random(hidden)
	router, rv := g.random(experts * hidden)
	r := routed{Route: Route{X: x, Norm: norm, Router: router, T: T, Hidden: hidden, Eps: 1e-5,
		Chosen: Chosen{IDs: g.poisoned(T * used), Weights: g.poisoned(T * used), Experts: experts, Used: used}}}
	wide := make([]float64, len(rv))
	for i, v := range rv {
		wide[i] = float64(v)
	}
	for t := range T {
		r.logits = append(r.logits, times(wide, normed(xv[t*hidden:(t+1)*hidden], nv, 1e-5))...)
	}
	return r
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// want returns the experts and weights of row t: all experts, sorted by falling choice.
func (r routed) want(g *rig, t int) (ids []int, weights []float64) {
	e, used := r.Chosen.Experts, r.Chosen.Used
	l := slices.Clone(r.logits[t*e : (t+1)*e])
	scores, choice := make([]float64, e), make([]float64, e)
	for i := range l {
		if !r.Bias.IsZero() {
			l[i] += float64(g.h.Float32(r.Bias)[i])
		}
	}
	sum := 0.0
	for i := range l {
		sum += math.Exp(l[i])
	}
	for i := range l {
		scores[i] = [...]float64{math.Exp(l[i]) / sum, sigmoid(l[i]), math.Exp(l[i])}[r.Scoring]
		choice[i] = scores[i]
		if !r.Choice.IsZero() {
			choice[i] += float64(g.h.Float32(r.Choice)[i])
		}
		ids = append(ids, i)
	}
	ids = slices.DeleteFunc(ids, func(i int) bool {
		return !slices.Contains(r.groups(choice), i/max(1, e/max(1,
			r.Groups)))
	})
	slices.SortStableFunc(ids, func(a, b int) int { return -cmpFloat(choice[a], choice[b]) })
	ids, sum = ids[:used], 0
	for _, i := range ids {
		weights, sum = append(weights, scores[i]), sum+scores[i]
	}
	for k := range weights {
		if r.Normalise || r.Scoring == SoftmaxOfChosen {
			weights[k] /= sum
		}
		if r.Scale != 0 {
			weights[k] *= float64(r.Scale)
		}
	}
	return ids, weights
}

func cmpFloat(a, b float64) int {
	if a < b {
		return -1
	}
	return 1
}

// groups returns the groups that experts may be chosen from.
func (r routed) groups(choice []float64) (all []int) {
	if r.Groups <= 1 {
		for i := range choice {
			all = append(all, i)
		}
		return all
	}
	size := len(choice) / r.Groups
	best := make([]float64, r.Groups)
	for g := range best {
		group := slices.Sorted(slices.Values(choice[g*size : (g+1)*size]))
		if best[g] = group[size-1]; r.BestTwo {
			best[g] += group[size-2]
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b int) int { return -cmpFloat(best[a], best[b]) })
	return all[:r.GroupsUsed]
}

// A router's choice and weights are those of a plain loop, in every form that a family has.
func TestRoute(t *testing.T) {
	for name, change := range map[string]func(g *rig, r *Route){
		"softmax":        func(*rig, *Route) {},
		"normalised":     func(_ *rig, r *Route) { r.Normalise = true },
		"of the chosen":  func(g *rig, r *Route) { r.Scoring = SoftmaxOfChosen; r.Bias, _ = g.random(24) },
		"best of groups": func(_ *rig, r *Route) { r.Groups, r.GroupsUsed, r.Scale = 6, 2, 2.5 },
		"sigmoid, corrected": func(g *rig, r *Route) {
			r.Scoring = Sigmoid
			r.Choice,
				_ = g.random(24)
			r.Normalise = true
		},
		"groups by two": func(g *rig, r *Route) {
			r.Scoring, r.Groups, r.GroupsUsed, r.BestTwo = Sigmoid, 4, 2, true
			r.Choice, _ = g.random(24)
		},
	} {
		for _, rows := range []int{1, 5} {
			g := newRig(t, 1, 8)
			r := g.route(rows, 24, 4)
			change(g, &r.Route)
			g.launch(r.Route)
			for row := range rows {
				ids, weights := r.want(g, row)
				for k, id := range ids {
					got, weight := g.h.Int32(r.Chosen.IDs)[row*4+k], g.h.Float32(r.Chosen.Weights)[row*4+k]
					if int(got) != id || math.Abs(float64(weight)-weights[k]) > 1e-5 {
						t.Fatalf("%s, row %d of %d, rank %d: expert %d × %v, wants %d × %v", name, row, rows, k, got,
							weight,
							id, weights[k])
					}
				}
			}
		}
	}
}

// Of equal scores the smaller id comes first, and a row of NaN, such as padding, has experts that exist and differ.
func TestRouteBreaksTies(t *testing.T) {
	g := newRig(t, 1, 8)
	r := g.route(2, 8, 3)
	router := g.h.Float32(r.Router)
	for e := 1; e < 8; e++ {
		copy(router[e*r.Hidden:], router[:r.Hidden]) // all alike
	}
	for i := range r.Hidden {
		router[6*r.Hidden+i] = -router[i] // but for one
		g.h.Float32(r.X)[r.Hidden+i] = float32(math.NaN())
	}
	g.launch(r.Route)
	want := []int32{0, 1, 2, 0, 1, 2}
	if r.logits[0] < 0 {
		want = []int32{6, 0, 1, 0, 1, 2}
	}
	if got := g.h.Int32(r.Chosen.IDs)[:6]; !slices.Equal(got, want) {
		t.Errorf("%v, wants %v", got, want)
	}
}

// expertsCase is a layer's experts over random weights and rows, with their values.
type expertsCase struct {
	gateUp         ExpertGateUp
	down           ExpertDown
	gate, up, back []float64 // weights
	x, norm        []float32
	before         []float32 // x
}

const (
	expertsHidden = 24
	expertsInner  = 16
)

// experts returns experts of the width expertsInner in the format d.
func (g *rig) experts(r routed, d DType, limit float32, biased bool) (c expertsCase) {
	e, T, used := r.Chosen.Experts, r.T, r.Chosen.Used
	gate, gv := g.weight(d, e*expertsInner, expertsHidden)
	up, uv := g.weight(d, e*expertsInner, expertsHidden)
	down, dv := g.weight(d, e*expertsHidden, expertsInner)
	x, xv := g.random(T * expertsHidden)
	norm, nv := g.random(expertsHidden)
	inner := g.poisoned(T * used * expertsInner)
	c = expertsCase{gate: gv, up: uv, back: dv, x: xv, norm: nv, before: slices.Clone(xv),
		gateUp: ExpertGateUp{X: x, Norm: norm, Gate: gate, Up: up, Chosen: r.Chosen, Out: inner, Limit: limit,
			Eps: 1e-5, T: T},
		down: ExpertDown{Down: down, In: inner, X: x, Chosen: r.Chosen, T: T}}
	if biased {
		c.gateUp.GateBias, _ = g.random(e * expertsInner)
		c.gateUp.UpBias, _ = g.random(e * expertsInner)
		c.down.Bias, _ = g.random(e * expertsHidden)
	}
	return c
}

// want returns row t of the residual stream after the experts.
func (c expertsCase) want(g *rig, t int) []float64 {
	n := normed(c.before[t*expertsHidden:(t+1)*expertsHidden], c.norm, 1e-5)
	y := make([]float64, expertsHidden)
	at := func(b device.Buffer, i int) float64 {
		if b.IsZero() {
			return 0
		}
		return float64(g.h.Float32(b)[i])
	}
	chosen := c.down.Chosen
	for k := range chosen.Used {
		e := int(g.h.Int32(chosen.IDs)[t*chosen.Used+k])
		part := func(w []float64, rows, cols int) []float64 { return w[e*rows*cols : (e+1)*rows*cols] }
		gate := times(part(c.gate, expertsInner, expertsHidden), n)
		up := times(part(c.up, expertsInner, expertsHidden), n)
		for i := range gate {
			a, b := gate[i]+at(c.gateUp.GateBias, e*expertsInner+i), up[i]+at(c.gateUp.UpBias, e*expertsInner+i)
			if l := float64(c.gateUp.Limit); l > 0 {
				a, b = min(a, l), max(-l, min(b, l))
				gate[i] = a * sigmoid(1.702*a) * (b + 1)
			} else {
				gate[i] = a * sigmoid(a) * b
			}
		}
		for i, v := range times(part(c.back, expertsHidden, expertsInner), gate) {
			y[i] += float64(g.h.Float32(chosen.Weights)[t*chosen.Used+k]) * (v + at(c.down.Bias, e*expertsHidden+i))
		}
	}
	for i := range y {
		y[i] += float64(c.before[t*expertsHidden+i])
	}
	return y
}

// The experts of each row are those of a plain loop, with gpt-oss's biases and limit and without.
func TestExperts(t *testing.T) {
	for _, rows := range []int{1, 3, 9} {
		for _, limit := range []float32{0, 0.7} {
			g := newRig(t, 1, 8)
			r := g.route(rows, 6, 2)
			g.launch(r.Route)
			c := g.experts(r, F32, limit, limit > 0)
			g.launch(c.gateUp)
			g.launch(c.down)
			for row := range rows {
				for i, want := range c.want(g, row) {
					if got := c.x[row*expertsHidden+i]; !near(got, want, 8*expertsHidden) {
						t.Fatalf("%d rows, limit %v, row %d, element %d: %v, wants %v", rows, limit, row, i, got, want)
					}
				}
			}
		}
	}
}

// A row's bits are the same alone and beside others, by consecutive rows and by a row index, whose padding is left.
func TestExpertsDoNotDependOnNeighbours(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, used = 7, 3
	r := g.route(rows, 5, used)
	g.launch(r.Route)
	c := g.experts(r, BF16, 0, false)
	g.launch(c.gateUp)
	g.launch(c.down)
	together := slices.Clone(c.x)
	ids, weights := slices.Clone(g.h.Int32(r.Chosen.IDs)), slices.Clone(g.h.Float32(r.Chosen.Weights))
	index, _ := g.random(2)
	for row := range rows {
		copy(c.x, c.before)
		copy(g.h.Float32(r.X), g.h.Float32(r.X)[row*r.Hidden:(row+1)*r.Hidden])
		g.h.Int32(index)[0], g.h.Int32(index)[1] = 0, -1
		one := r.Route
		one.T, one.RowIndex = 2, index
		g.launch(one)
		if !slices.Equal(g.h.Int32(r.Chosen.IDs)[:used], ids[row*used:(row+1)*used]) ||
			!slices.Equal(g.h.Float32(r.Chosen.Weights)[:used], weights[row*used:(row+1)*used]) {
			t.Fatalf("row %d: experts %v, together %v", row, g.h.Int32(r.Chosen.IDs)[:used], ids[row*used:(row+1)*used])
		}
		gateUp, down := c.gateUp, c.down
		copy(c.x, c.before[row*expertsHidden:(row+1)*expertsHidden])
		second := slices.Clone(c.x[expertsHidden : 2*expertsHidden])
		gateUp.RowIndex, gateUp.T, down.RowIndex, down.T = index, 2, index, 2
		g.launch(gateUp)
		g.launch(down)
		if !slices.Equal(c.x[:expertsHidden], together[row*expertsHidden:(row+1)*expertsHidden]) {
			t.Fatalf("row %d differs beside others", row)
		}
		if !slices.Equal(c.x[expertsHidden:2*expertsHidden], second) {
			t.Fatalf("row %d: the padding was written", row)
		}
	}
}

// Shapes that do not fit are refused before a launch.
func TestExpertsRefuse(t *testing.T) {
	g := newRig(t, 1, 8)
	r := g.route(2, 6, 2)
	c := g.experts(r, F32, 0, true)
	for name, check := range map[string]func() error{
		"more used than there are": func() error { o := r.Route; o.Chosen.Used = 7; return o.Check() },
		"too many experts":         func() error { o := r.Route; o.Chosen.Experts = MostExperts + 1; return o.Check() },
		"groups that do not divide": func() error {
			o := r.Route
			o.Groups, o.GroupsUsed = 4, 2
			return o.Check()
		},
		"too few in the groups": func() error { o := r.Route; o.Groups, o.GroupsUsed = 6, 1; return o.Check() },
		"a short bias":          func() error { o := r.Route; o.Bias = o.Norm.Slice(0, 4); return o.Check() },
		"a short stack":         func() error { o := c.gateUp; o.Chosen.Experts = 5; return o.Check() },
		"another width":         func() error { o := c.gateUp; o.Up = c.down.Down; return o.Check() },
		"a short result":        func() error { o := c.gateUp; o.Out = o.Out.Slice(0, 8); return o.Check() },
		"short biases":          func() error { o := c.down; o.Bias = o.Bias.Slice(0, 8); return o.Check() },
		"rows in order": func() error {
			o := c.down
			o.Class, o.RowIndex = Prefill,
				r.Chosen.IDs
			return o.Check()
		},
	} {
		if err := check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
	if err := errors.Join(r.Check(), c.gateUp.Check(), c.down.Check()); err != nil {
		t.Error(err)
	}
}

// Experts of a quantised format, and of bfloat16, have the sums of the same rows of a weight without experts.
func TestExpertsOfFormats(t *testing.T) {
	const rows, hidden = 4 * 32, 64
	g := newRig(t, 1, 8)
	quantised := func() Weight {
		data, _ := quantisedWeight(g.r, MXFP4, rows, hidden)
		w, err := LoadWeight(g.h, MXFP4, rows, hidden, data)
		g.must(err)
		return w
	}
	rounded := func() Weight {
		w, _ := g.weight(BF16, rows, hidden)
		return w
	}
	g.expertsAlone(quantised(), quantised())
	g.expertsAlone(rounded(), rounded())
	g.expertsAlone(rounded(), quantised())
}

// expertsAlone compares two of four experts with all rows of gate and up.
func (g *rig) expertsAlone(gate, up Weight) {
	g.t.Helper()
	hidden, inner := gate.Cols, gate.Rows/4
	x, xv := g.random(hidden)
	norm, nv := g.random(hidden)
	chosen := Chosen{IDs: g.poisoned(2), Weights: g.poisoned(2), Experts: 4, Used: 2}
	copy(g.h.Int32(chosen.IDs), []int32{3, 1})
	out := g.poisoned(2 * inner)
	g.launch(ExpertGateUp{X: x, Norm: norm, Gate: gate, Up: up, Chosen: chosen, Out: out, T: 1, Eps: 1e-5})
	n := make([]float32, hidden)
	rmsNorm(n, xv, nv, 1e-5)
	a, b := make([]float32, gate.Rows), make([]float32, gate.Rows)
	product(g.h, gate, n, 1, a, gate.Rows, false)
	product(g.h, up, n, 1, b, gate.Rows, false)
	SiLU.gate(a, b)
	for k, e := range []int{3, 1} {
		for i := range inner {
			if got, want := g.h.Float32(out)[k*inner+i], a[e*inner+i]; got != want {
				g.t.Fatalf("formats %d and %d, expert %d, element %d: %v, wants %v", gate.DType, up.DType, e, i, got,
					want)
			}
		}
	}
}
