package model_test

import (
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// mixed is a checkpoint of bfloat16 with some matrices as Q8_0 and others as float16 zeros.
type mixed struct {
	model.Tensors
	blocks, halves string // parts of names, separated by spaces
}

func (m mixed) Tensor(name string) (weights.Tensor, error) {
	x, err := m.Tensors.Tensor(name)
	has := func(parts string) bool {
		for _, p := range strings.Fields(parts) {
			if strings.Contains(name, p) && len(x.Shape) > 1 {
				return true
			}
		}
		return false
	}
	switch {
	case err != nil:
	case has(m.blocks):
		x = quantised{}.quantise(x, false)
	case has(m.halves):
		x.DType, x.Data = weights.F16, make([]byte, len(x.Data))
	}
	return x, err
}

// What an op hands over is what the next product expects, of one type, and never between quantised weights and others. A
// prefill pass of one type hands over everywhere but to its first QKV and after its last; one of the decode class also
// in its last layer, and over quantised weights to the down projection and the QKV after it.
func TestHandoversMatch(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	c, w := checkpoint(t, "llama-2")
	for _, test := range []struct {
		blocks, halves string
		want, decode   int
	}{
		{"", "", 4, 7}, {"q_proj", "", 3, 6}, {"0.self_attn.v_proj", "", 4, 7}, {"1.self_attn.v_proj", "", 3, 6},
		{"o_proj", "", 2, 3}, {"up_proj", "", 2, 3}, {"down_proj", "", 2, 4}, {"embed", "down_proj", 2, 4},
		{"embed", "o_proj gate_proj", 2, 3}, {"embed", "o_proj gate_proj up_proj", 3, 5}, {"embed", "proj", 4, 7},
		{"proj", "", 0, 3}, {"proj embed", "", 0, 3}, {"gate_proj up_proj down_proj", "", 1, 4}, {"1.mlp", "", 4, 6},
	} {
		m, err := model.Load(h, c, mixed{w, test.blocks, test.halves}, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := m.NewStepMemory(h, model.Geometry{MaxRows: 8, Slots: 1, MaxSamples: 1, Context: 16, PageTokens: 16, Pages: 1,
			RingSlots: 2})
		if err != nil {
			t.Fatal(err)
		}
		for class, want := range map[kernels.Class]int{kernels.Prefill: test.want, kernels.Decode: test.decode} {
			var l launches
			if err := m.Forward(&l, memory, model.Shape{Class: class, Rows: 8, Samples: 1}); err != nil {
				t.Fatal(err)
			}
			if got := handovers(t, class, l.ops); got != want {
				t.Errorf("%+v, class %d: %d hand-overs", test, class, got)
			}
		}
		if err := memory.Free(h); err != nil {
			t.Error(err)
		}
		if err := m.Free(h); err != nil {
			t.Error(err)
		}
	}
}

// In a pass of the decode class attention hands its results over to an output projection over quantised weights if its
// heads have a size for which there are kernels, one with deferred RoPE too, and in a verify pass.
func TestAttentionHandsOverToQuantisedProjections(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*model.Config)
		blocks string
		shape  model.Shape
		want   kernels.DType
	}{
		"decode":          {func(*model.Config) {}, "o_proj", model.Shape{Rows: 8}, kernels.Q8_0},
		"verify":          {func(*model.Config) {}, "o_proj", model.Shape{Rows: 8, Queries: 4}, kernels.Q8_0},
		"deferred":        {func(c *model.Config) { c.HeadNorms = true }, "o_proj", model.Shape{Rows: 8}, kernels.Q8_0},
		"small heads":     {func(c *model.Config) { c.HeadDim = 32 }, "o_proj", model.Shape{Rows: 8}, 0},
		"other weights":   {func(*model.Config) {}, "q_proj", model.Shape{Rows: 8}, kernels.BF16},
		"rows of prompts": {func(*model.Config) {}, "o_proj", model.Shape{Rows: 8, Class: kernels.Prefill}, 0},
	} {
		c := model.Config{Name: "llama", Vocab: 64, Hidden: 256, Inner: 384, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64,
			Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000}
		test.change(&c)
		test.shape.Samples = 8
		h := device.NewHost(device.HostOptions{})
		var seen int
		for _, op := range opsOf(t, h, c, zeros{c, test.blocks}, test.shape) {
			switch o := op.(type) {
			case kernels.Attend:
				if seen++; o.Layer == 0 && o.Handover.DType != test.want {
					t.Errorf("%s: attention hands over type %d, wants %d", name, o.Handover.DType, test.want)
				}
			case kernels.Projection:
				if seen == 1 && o.Name == kernels.OutputProjection && o.Handover.InputIsRounded != (test.want != 0) {
					t.Errorf("%s: the projection takes rounded rows: %t", name, o.Handover.InputIsRounded)
				}
			}
		}
		if seen != c.Layers {
			t.Errorf("%s: %d attentions", name, seen)
		}
		h.Close()
	}
}

// handedType returns the type in which products over the weights take and leave rows. Those of the decode class over
// quantised weights have a form of their own, whatever the format.
func handedType(class kernels.Class, w ...kernels.Weight) kernels.DType {
	if class == kernels.Decode && !slices.ContainsFunc(w, func(w kernels.Weight) bool { return !w.DType.Quantised() }) {
		return kernels.Q8_0
	}
	return class.HandoverType(w...)
}

// handovers checks the hand-overs between ops and counts them.
func handovers(t *testing.T, class kernels.Class, ops []device.Op) (n int) {
	t.Helper()
	var given kernels.Handover // by the op before
	var as kernels.DType       // the type in which it rounded
	for _, op := range ops {
		var taken kernels.Handover
		var into kernels.Workspace
		var of kernels.DType
		switch o := op.(type) {
		case kernels.QKV:
			taken, into, of = o.Handover, o.Workspace, handedType(class, o.Q, o.K, o.V)
		case kernels.Attend:
			given, as = o.Handover, o.Handover.DType
			continue
		case kernels.Projection:
			taken, into, of = o.Handover, o.Workspace, handedType(class, o.W)
		case kernels.GateUp:
			taken, into, of = o.Handover, o.Workspace, handedType(class, o.Gate, o.Up)
		default:
			continue
		}
		if taken.InputIsRounded == given.Rounded.IsZero() {
			t.Errorf("%s: input is rounded %t after %+v", op.Kernel(), taken.InputIsRounded, given)
		}
		if taken.InputIsRounded {
			n++
			if given.Rounded != into.Rounded || as != of || of == 0 {
				t.Errorf("%s takes type %d from type %d, %+v", op.Kernel(), of, as, given)
			}
		}
		given, as = taken, of
	}
	return n
}

// zeros are tensors of zeros in bfloat16, but for matrices whose names contain a part, which are Q8_0.
type zeros struct {
	c      model.Config
	blocks string
}

func (o zeros) Tensor(name string) (weights.Tensor, error) {
	for _, s := range o.c.Tensors() {
		if s.Name != name {
			continue
		}
		n := 2
		for _, d := range s.Shape {
			n *= d
		}
		x := weights.Tensor{Name: name, DType: weights.BF16, Shape: s.Shape, Data: make([]byte, n)}
		if o.blocks != "" && strings.Contains(name, o.blocks) {
			x.DType, x.Data = weights.Q8_0, make([]byte, n/64*34)
		}
		return x, nil
	}
	return weights.Tensor{}, weights.ErrMissing
}

func (o zeros) Names() (names []string) {
	for _, s := range o.c.Tensors() {
		names = append(names, s.Name)
	}
	return names
}

// Ranks hand parts of rounded rows over in all layers but the last, each with the exchange after it, and the sampled rows
// are completed; or, if one product of one layer cannot or a part is no whole block, nowhere.
func TestRanksHandPartsOverEverywhereOrNowhere(t *testing.T) {
	shape := model.Config{Name: "llama", Vocab: 64, Hidden: 256, Inner: 384, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000, Ranks: 2}
	for name, test := range map[string]struct {
		blocks string
		change func(*model.Config)
		want   int
	}{
		"all":              {"", func(*model.Config) {}, 8},
		"another type":     {"1.mlp.up_proj", func(*model.Config) {}, 0},
		"the last layer's": {"2.mlp.up_proj", func(*model.Config) {}, 8},
		"the last qkv":     {"2.self_attn.k_proj", func(*model.Config) {}, 0},
		"half blocks":      {"", func(c *model.Config) { c.Hidden = 384 }, 0},
		"narrow gates":     {"", func(c *model.Config) { c.Inner = 320 }, 0},
		"one layer":        {"", func(c *model.Config) { c.Layers = 1 }, 0},
	} {
		c := shape
		test.change(&c)
		ops := opsOf(t, newRanks(t, 2), c, zeros{c, test.blocks}, model.Shape{Class: kernels.Prefill, Rows: 8, Samples: 1})
		got, complete := 0, 0
		for _, op := range ops {
			var h kernels.Handover
			var e kernels.Exchange
			switch o := op.(type) {
			case kernels.Attend:
				h, e = o.Handover, o.Spread
			case kernels.GateUp:
				h, e = o.Handover, o.Spread
			case kernels.Projection:
				h, e = o.Handover, o.Spread
			case kernels.Complete:
				complete++
			}
			if h.Rounded != e.Rounded || e.Squares != !h.Norm.IsZero() || !h.Rounded.IsZero() && h.Ranks != 2 {
				t.Errorf("%s: %s hands over %+v, exchanged are %+v", name, op.Kernel(), h, e)
			}
			if !h.Rounded.IsZero() {
				got++
			}
		}
		if got != test.want || complete != min(1, test.want) {
			t.Errorf("%s: %d hand-overs and %d completions, wants %d", name, got, complete, test.want)
		}
	}
}

// opsOf returns the ops of a pass.
func opsOf(t *testing.T, dev device.Device, c model.Config, w model.Tensors, shape model.Shape) []device.Op {
	t.Helper()
	m, err := model.Load(dev, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := m.NewStepMemory(dev, model.Geometry{MaxRows: 8, Slots: 1, MaxSamples: 8, Context: 16, PageTokens: 16,
		Pages: 1, RingSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	var l launches
	if err := m.Forward(&l, memory, shape); err != nil {
		t.Fatal(err)
	}
	for _, free := range []func(device.Memory) error{memory.Free, m.Free} {
		if err := free(dev); err != nil {
			t.Error(err)
		}
	}
	return l.ops
}
