package kernels

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// taggedRig returns experts of one row of 64 columns with tags.
func taggedRig(t *testing.T) Experts {
	h := newRig(t, 1, 8).h
	alloc := func(bytes int64) device.Buffer {
		b, err := h.Alloc(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const hidden, inner, experts, used = 64, 64, 4, 2
	weight := func(rows, cols int) Weight {
		return Weight{Data: alloc(int64(2 * rows * cols)), DType: BF16, Rows: rows, Cols: cols}
	}
	x, norm := alloc(4*hidden), alloc(4*hidden)
	c := Chosen{IDs: alloc(4 * used), Weights: alloc(4 * used), Experts: experts, Used: used}
	gates := alloc(4 * used * inner)
	o := Experts{
		Route: Route{X: x, Norm: norm, Router: alloc(4 * experts * hidden), Chosen: c, T: 1, Hidden: hidden},
		GateUp: ExpertGateUp{X: x, Norm: norm, Gate: weight(experts*inner, hidden), Up: weight(experts*inner, hidden),
			Chosen: c, Out: gates, T: 1},
		Down: ExpertDown{Down: weight(experts*hidden, inner), In: gates, X: x, Chosen: c, T: 1},
		Tags: Tags{Pass: alloc(4), In: alloc(TagBytes(hidden)), Taken: 3, Given: 4},
		Between: ExpertTags{Logits: alloc(TagBytes(experts)), Choice: alloc(TagBytes(2 * used)),
			Inner: alloc(TagBytes(used * inner / 2))},
	}
	o.Tags.Out = o.Tags.In
	return o
}

// Experts with tags have one row, in the one residual stream, and memory for all that their kernels pass on.
func TestTaggedExpertsRefuse(t *testing.T) {
	o := taggedRig(t)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	index := o.Route.Chosen.IDs
	for name, change := range map[string]func(o *Experts){
		"two streams":        func(o *Experts) { o.Tags.Out = o.Between.Inner },
		"a number too large": func(o *Experts) { o.Tags.Taken, o.Tags.Given = 1023, 1024 },
		"numbers apart":      func(o *Experts) { o.Tags.Given = 5 },
		"no logits":          func(o *Experts) { o.Between.Logits = device.Buffer{} },
		"few choices":        func(o *Experts) { o.Between.Choice = o.Between.Choice.Slice(0, 16) },
		"few results":        func(o *Experts) { o.Between.Inner = o.Between.Inner.Slice(0, 8*63) },
		"a short stream": func(o *Experts) {
			o.Tags.In = o.Tags.In.Slice(0, 8*63)
			o.Tags.Out = o.Tags.In
		},
		"groups":                  func(o *Experts) { o.Route.Groups, o.Route.GroupsUsed = 2, 2 },
		"no sum":                  func(o *Experts) { o.Down.Store = true },
		"a list of rows":          func(o *Experts) { o.Route.RowIndex = index },
		"a list of rows of gates": func(o *Experts) { o.GateUp.RowIndex = index },
		"a list of rows of down":  func(o *Experts) { o.Down.RowIndex = index },
		"weights without kernels": func(o *Experts) { o.Down.Down.DType = F16 },
	} {
		changed := o
		change(&changed)
		if err := changed.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
}

// Kernels of experts with tagged values are for bfloat16 and some formats, whole blocks of columns, and few experts.
func TestCanTagExperts(t *testing.T) {
	stack := func(d DType, rows, cols int) Weight { return Weight{DType: d, Rows: rows, Cols: cols} }
	for _, test := range []struct {
		hidden, inner, experts, used int
		gates, down                  DType
		want                         bool
	}{
		{2048, 768, 128, 8, BF16, BF16, true}, // Qwen3-30B-A3B
		{2880, 2880, 32, 4, BF16, BF16, true}, // gpt-oss-20b
		{2048, 768, 144, 8, BF16, BF16, false}, {2048, 768, 128, 8, F16, F16, false},
		{2048, 768, 128, 8, BF16, F16, false}, {2048, 768, 128, 8, BF16, Q4_K, true},
		{2048, 768, 128, 8, Q4_K, Q4_K, true}, {2048, 768, 128, 8, Q4_K, Q6_K, true},
		{2048, 768, 128, 8, G4_128, G4_128, true}, {2048, 768, 128, 8, F8, F8, true},
		{2048, 768, 128, 8, Q6_K, Q6_K, false}, {2048, 768, 128, 8, Q8_0, Q8_0, false},
		{2048, 768, 128, 8, Q4_K, Q8_0, false},
		{2048, 768, 128, 9, Q4_K, Q4_K, false},  // more experts than places of an operand
		{2048, 2048, 128, 8, Q4_K, Q4_K, false}, // which has a ring
		{2880, 2880, 32, 4, MXFP4, MXFP4, true}, {2880, 2880, 32, 9, MXFP4, MXFP4, false},
		{2880, 2880, 32, 4, BF16, MXFP4, true}, {2880, 448, 32, 4, MXFP4, BF16, true},
		{2880, 448, 32, 4, MXFP4, MXFP4, false}, // which has no ring
		{2880, 2880, 32, 4, MXFP4, Q8_0, false}, {2880, 2880, 144, 4, MXFP4, MXFP4, false},
		{2048, 744, 128, 8, BF16, BF16, false}, {2048, 784, 128, 8, BF16, BF16, false},
		{2056, 768, 128, 8, BF16, BF16, false},
		{12096, 768, 8, 2, BF16, BF16, false}, {2048, 16384, 8, 3, BF16, BF16, false},
	} {
		gate := stack(test.gates, test.experts*test.inner, test.hidden)
		down := stack(test.down, test.experts*test.hidden, test.inner)
		if got := CanTagExperts(gate, gate, down, test.experts, test.used); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
	gate, down := stack(BF16, 8*64, 64), stack(BF16, 8*64, 64)
	if CanTagExperts(gate, stack(F16, 8*64, 64), down, 8, 2) {
		t.Error("the second weight of gates is not looked at")
	}
}
