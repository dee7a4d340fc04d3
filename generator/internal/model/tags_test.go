package model_test

import (
	"maps"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// zeroTensors are tensors in bfloat16, by name.
type zeroTensors map[string]model.TensorSpec

func zerosOf(c model.Config) zeroTensors {
	z := zeroTensors{}
	for _, s := range c.Tensors() {
		z[s.Name] = s
	}
	return z
}

func (z zeroTensors) Tensor(name string) (weights.Tensor, error) {
	s, ok := z[name]
	if !ok {
		return weights.Tensor{}, weights.ErrMissing
	}
	return weights.Tensor{Name: name, DType: weights.BF16, Shape: s.Shape, Data: make([]byte, 2*s.Elements())}, nil
}

func (z zeroTensors) Names() []string { return slices.Collect(maps.Keys(z)) }

// tagConfig is a small model whose passes of one row have tagged values.
func tagConfig() model.Config {
	return model.Config{Name: "llama", Vocab: 256, Hidden: 128, Inner: 192, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 64,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 10000, TiedHead: true}
}

// tagRig is a model in step memory on the host.
type tagRig struct {
	t      *testing.T
	m      *model.Model
	memory *model.StepMemory
}

// newTagRig returns a rig with a config's model; blocks and halves are those of mixed.
func newTagRig(t *testing.T, c model.Config, blocks, halves string, kv kernels.DType, drafter model.Drafter) *tagRig {
	t.Helper()
	return newTagRigOf(t, c, mixed{zerosOf(c), blocks, halves}, kv, drafter)
}

func newTagRigOf(t *testing.T, c model.Config, w model.Tensors, kv kernels.DType, drafter model.Drafter) *tagRig {
	t.Helper()
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	r := &tagRig{t: t}
	var err error
	if r.m, err = model.Load(h, c, w, func(float64) {}); err != nil {
		t.Fatal(err)
	}
	g := model.Geometry{MaxRows: 8, Slots: 4, MaxSamples: 8, Context: c.Context, PageTokens: 16, Pages: 16, RingSlots: 2, Masks: 4,
		KVType: kv, Drafter: drafter}
	if drafter == model.ModelDrafter {
		g.DraftModel = r.m
	}
	if r.memory, err = r.m.NewStepMemory(h, g); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *tagRig) ops(s model.Shape) []device.Op {
	r.t.Helper()
	var l launches
	if err := r.m.Forward(&l, r.memory, s); err != nil {
		r.t.Fatal(err)
	}
	return l.ops
}

// tagsOf returns an op's tags.
func tagsOf(op device.Op) (t kernels.Tags) {
	switch o := op.(type) {
	case kernels.Embed:
		t = o.Tags
	case kernels.QKV:
		t = o.Tags
	case kernels.Attend:
		t = o.Tags
	case kernels.Projection:
		t = o.Tags
	case kernels.GateUp:
		t = o.Tags
	case kernels.Experts:
		t = o.Tags
	case kernels.Head:
		t = o.Tags
	}
	return t
}

// tagged returns how many ops have tags.
func tagged(ops []device.Op) (n int) {
	for _, op := range ops {
		if !tagsOf(op).Pass.IsZero() {
			n++
		}
	}
	return n
}

// tagDevice keeps the tags that a GPU's memory would have, and who has read them.
type tagDevice struct {
	t      *testing.T
	pass   int
	tags   map[device.Buffer]int  // of each buffer's values
	unread map[device.Buffer]bool // values that nobody has taken
	began  bool                   // whether the op before has begun the pass
}

func (d *tagDevice) take(op device.Op, b device.Buffer, tag int) {
	d.t.Helper()
	if got, ok := d.tags[b]; !ok || got != d.pass+tag {
		d.t.Fatalf("%s waits for %d in a buffer with %d: for ever", op.Kernel(), d.pass+tag, got)
	}
	delete(d.unread, b)
}

// run runs an op. The results of one must be taken before another one's come to the same buffer.
func (d *tagDevice) run(op device.Op) {
	d.t.Helper()
	t := tagsOf(op)
	if waits := !t.In.IsZero() && t.Taken == 0; waits != d.began {
		d.t.Fatalf("%s waits for the op before: %t, after the first one of a pass: %t", op.Kernel(), waits, d.began)
	}
	if _, d.began = op.(kernels.Embed); d.began {
		d.pass += 1024
	}
	if !t.In.IsZero() {
		d.take(op, t.In, t.Taken)
	}
	if _, ok := op.(kernels.Projection); ok {
		d.take(op, t.Out, t.Given-1)
	}
	if o, ok := op.(kernels.Experts); ok {
		d.runExperts(o)
	}
	if t.Out.IsZero() {
		return
	}
	if d.unread[t.Out] {
		d.t.Fatalf("%s gives values to a buffer whose last ones nobody has taken", op.Kernel())
	}
	d.tags[t.Out], d.unread[t.Out] = d.pass+t.Given, true
}

// families of which passes of one row have tagged values.
func taggedConfigs() map[string]model.Config {
	biased, normed := tagConfig(), tagConfig()
	biased.Bias, biased.TiedHead, biased.Vocab = true, false, 250
	normed.HeadNorms, normed.OutputBias, normed.HeadDim = true, true, 128
	return map[string]model.Config{"plain": tagConfig(), "biases": biased, "norms of heads": normed,
		"experts": tagExperts(), "some experts": tagMixed(), "sinks": tagSinks()}
}

// In passes of one row each op takes what the op before has given, with a number that no earlier value has, in steps with
// and without samples, whatever other passes come between. Other passes have no tags.
func TestTaggedValuesFollowThePass(t *testing.T) {
	for name, c := range taggedConfigs() {
		t.Run(name, func(t *testing.T) {
			r := newTagRig(t, c, "", "", kernels.BF16, model.LookupDrafter)
			d := &tagDevice{t: t, tags: map[device.Buffer]int{}, unread: map[device.Buffer]bool{}}
			for _, s := range []model.Shape{{Rows: 1, Samples: 1}, {Rows: 1}, {Rows: 2}, {Rows: 2, Samples: 2},
				{Rows: 1, Samples: 1},
				{Rows: 5, Samples: 1, Class: kernels.Prefill}, {Rows: 1, Samples: 1, Class: kernels.Prefill},
				{Rows: 1, Samples: 1, Apart: true}, {Rows: 4, Samples: 4, Queries: 4}, {Rows: 1, Samples: 1}} {
				ops := r.ops(s)
				one := s == model.Shape{Rows: 1, Samples: s.Samples}
				want := 0
				if one {
					want = taggedOps(c, s.Samples)
					clear(d.unread) // of a pass without samples, the residual stream
				}
				if n := tagged(ops); n != want {
					t.Errorf("%+v: %d ops with tags, wants %d", s, n, want)
				}
				for _, op := range ops {
					if err := op.Check(); err != nil {
						t.Fatalf("%s: %v", op.Kernel(), err)
					}
					if one {
						d.run(op)
					}
				}
			}
		})
	}
}

// Attention has the post-processing of the QKV before, whoever does it on a device without tagged values.
func TestTaggedAttentionPreparesHeads(t *testing.T) {
	for name, c := range taggedConfigs() {
		var qkv kernels.QKV
		for _, op := range newTagRig(t, c, "", "", kernels.BF16, model.NoDrafter).ops(model.Shape{Rows: 1, Samples: 1}) {
			switch o := op.(type) {
			case kernels.QKV:
				qkv = o
			case kernels.Attend:
				if o.TagsPost != qkv.Post() || o.TagsPost.RoPE.IsZero() || !o.AfterQKV {
					t.Errorf("%s: %+v after %+v", name, o.TagsPost, qkv.Post())
				}
				if o.Post.IsZero() == (c.Bias || c.HeadNorms) || qkv.DeferRoPE != !o.Post.IsZero() {
					t.Errorf("%s: other devices defer RoPE: %t", name, qkv.DeferRoPE)
				}
			}
		}
	}
}

// Weights may be codes, all or some ops'. What attention and gates leave is rounded as the next product takes it.
func TestTaggedValuesOfCodes(t *testing.T) {
	c := tagConfig()
	for _, blocks := range []string{"proj embed", "proj", "embed", "1.mlp.down_proj", "o_proj", "0.mlp", "self_attn"} {
		ops := newTagRig(t, c, blocks, "", kernels.BF16, model.NoDrafter).ops(model.Shape{Rows: 1, Samples: 1})
		if n := tagged(ops); n != 2+5*c.Layers {
			t.Errorf("%s: %d ops with tags", blocks, n)
		}
		for i, op := range ops {
			next, codes := op, false
			if i+1 < len(ops) {
				next = ops[i+1]
			}
			if p, ok := next.(kernels.Projection); ok {
				codes = p.W.DType.Quantised()
			}
			if got := tagsOf(op).ForCodes; got != codes {
				t.Errorf("%s: %s before %s gives values for codes: %t", blocks, op.Kernel(), next.Kernel(), got)
			}
		}
	}
}

// Models, weights and settings for which there are no such kernels have no tags in any pass.
func TestOtherModelsHaveNoTags(t *testing.T) {
	for i, change := range []func(c *model.Config){
		func(c *model.Config) { c.HeadDim = 32 }, func(c *model.Config) { c.Hidden = 160 },
		func(c *model.Config) { c.Inner = 96 },
		func(c *model.Config) { c.NormsAfter = true }, func(c *model.Config) { c.WidthNorms = true },
		func(c *model.Config) { c.Sinks, c.HeadDim = true, 128 }, func(c *model.Config) { c.ScoreCap = 50 },
		func(c *model.Config) {
			c.Hidden, c.Inner, c.Heads, c.KVHeads, c.Layers = 64, 64, 1, 1, kernels.MostTaggedLayers+1
		},
		func(c *model.Config) { *c = tagExperts(); c.Experts.Count = 144 },
		func(c *model.Config) { *c = tagExperts(); c.Experts.Inner = 96 },
		func(c *model.Config) { *c = tagExperts(); c.Experts.Shared = 64 },
		func(c *model.Config) { *c = tagExperts(); c.Experts.Groups, c.Experts.GroupsUsed = 4, 2 },
		func(c *model.Config) { *c = tagMixed(); c.Inner = 96 },
	} {
		c := tagConfig()
		change(&c)
		if n := tagged(newTagRig(t, c, "", "", kernels.BF16, model.NoDrafter).ops(model.Shape{Rows: 1, Samples: 1})); n > 0 {
			t.Errorf("change %d: %d ops with tags", i, n)
		}
	}
	for _, test := range []struct {
		blocks, halves string
		kv             kernels.DType
		drafter        model.Drafter
	}{{"", "", kernels.F32, model.NoDrafter}, {"", "", kernels.BF16, model.ModelDrafter},
		{"2.self_attn.q_proj", "", kernels.BF16, model.NoDrafter}, {"0.mlp.up_proj", "", kernels.BF16, model.NoDrafter},
		{"proj", "embed", kernels.BF16, model.NoDrafter}, {"", "proj embed", kernels.BF16, model.NoDrafter}} {
		r := newTagRig(t, tagConfig(), test.blocks, test.halves, test.kv, test.drafter)
		if n := tagged(r.ops(model.Shape{Rows: 1, Samples: 1, Follow: test.drafter == model.ModelDrafter})); n > 0 {
			t.Errorf("%+v: %d ops with tags", test, n)
		}
	}
	for _, test := range []struct{ blocks, halves string }{{"1.mlp.experts.down_proj", ""},
		{"2.mlp.experts.gate_proj", ""}, {"", "proj embed"}} {
		r := newTagRig(t, tagExperts(), test.blocks, test.halves, kernels.BF16, model.NoDrafter)
		if n := tagged(r.ops(model.Shape{Rows: 1, Samples: 1})); n > 0 {
			t.Errorf("experts, %+v: %d ops with tags", test, n)
		}
	}
}

// A pass with tagged values refuses a shape that it does not fit.
func TestTagsAreChecked(t *testing.T) {
	one := model.Shape{Rows: 1, Samples: 1}
	ops := newTagRig(t, tagConfig(), "", "", kernels.BF16, model.NoDrafter).ops(one)
	ops = append(ops, newTagRig(t, tagExperts(), "", "", kernels.BF16, model.NoDrafter).ops(one)...)
	for i, op := range ops {
		tags := tagsOf(op)
		if tags.Pass.IsZero() {
			continue
		}
		for name, bad := range map[string]kernels.Tags{
			"number":  {Pass: tags.Pass, In: tags.In, Out: tags.Out, Taken: tags.Taken, Given: 1024},
			"input":   {Pass: tags.Pass, In: tags.Pass, Out: tags.Out},
			"results": {Pass: tags.Pass, In: tags.In, Out: tags.Pass},
		} {
			if name == "input" && tags.In.IsZero() || name == "results" && tags.Out.IsZero() {
				continue
			}
			if err := withTags(op, bad).Check(); err == nil {
				t.Errorf("op %d, %s: another %s is right", i, op.Kernel(), name)
			}
		}
		if o, ok := op.(kernels.Projection); ok {
			if o.Store = true; o.Check() == nil {
				t.Error("a projection with tags may store")
			}
		}
		if embed, ok := op.(kernels.Embed); ok {
			if embed.Tags.Given = 1; embed.Check() == nil {
				t.Error("embed may give another number than the one that the next op waits for")
			}
		}
	}
}

// Attention with tagged values refuses what it has no kernel for.
func TestTaggedAttentionRefuses(t *testing.T) {
	ops := newTagRig(t, tagSinks(), "", "", kernels.BF16, model.NoDrafter).ops(model.Shape{Rows: 1, Samples: 1})
	for name, change := range map[string]func(o *kernels.Attend){
		"a softcap":        func(o *kernels.Attend) { o.Softcap = 50 },
		"a first position": func(o *kernels.Attend) { o.First = 1 },
		"a prompt":         func(o *kernels.Attend) { o.Class = kernels.Prefill },
		"another op":       func(o *kernels.Attend) { o.AfterQKV = false },
	} {
		for _, op := range ops {
			o, ok := op.(kernels.Attend)
			if !ok {
				continue
			}
			o.Post, o.Handover = kernels.QKPost{}, kernels.Handover{} // these refuse some changes for themselves
			if err := o.Check(); err != nil {
				t.Fatal(err)
			}
			if change(&o); o.Check() == nil {
				t.Errorf("%s is right", name)
			}
		}
	}
}

// withTags returns op with other tags.
func withTags(op device.Op, t kernels.Tags) device.Op {
	switch o := op.(type) {
	case kernels.Embed:
		o.Tags = t
		return o
	case kernels.QKV:
		o.Tags = t
		return o
	case kernels.Attend:
		o.Tags = t
		return o
	case kernels.Projection:
		o.Tags = t
		return o
	case kernels.GateUp:
		o.Tags = t
		return o
	case kernels.Experts:
		o.Tags = t
		return o
	case kernels.Head:
		o.Tags = t
		return o
	}
	return op
}
