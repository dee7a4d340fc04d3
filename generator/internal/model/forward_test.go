package model_test

import (
	"errors"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// launches is a stream that records the ops launched on it.
type launches struct {
	device.Stream
	ops []device.Op
}

func (l *launches) Launch(op device.Op) error {
	l.ops = append(l.ops, op)
	return nil
}

// Each attention comes right after the QKV of its rows and layer and has AfterQKV set. In
// decode passes of families with biases or norms of q and k it takes over QK post-processing, but in layers
// that use keys and values of others, and of wide heads. After the last attention of a prefill pass only sampled
// rows go on.
func TestAttentionFollowsItsQKV(t *testing.T) {
	h, m := embedded(t)
	followsQKV(t, h, m)
	for _, name := range families {
		c, w := checkpoint(t, name)
		m, err := model.Load(h, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		followsQKV(t, h, m)
		if err := m.Free(h); err != nil {
			t.Error(err)
		}
	}
}

func followsQKV(t *testing.T, h device.Device, m *model.Model) {
	t.Helper()
	memory, err := m.NewStepMemory(h, model.Geometry{MaxRows: 8, Slots: 8, MaxSamples: 8, Context: m.Config.Context,
		PageTokens: 16, Pages: m.Config.Context / 16, RingSlots: 2, Drafter: model.ModelDrafter, DraftModel: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Free(h); err != nil {
			t.Error(err)
		}
	})
	for _, sh := range []model.Shape{
		{Class: kernels.Decode, Rows: 1, Samples: 1},
		{Class: kernels.Decode, Rows: 8, Samples: 8},
		{Class: kernels.Decode, Rows: 4, Samples: 4, Follow: true},
		{Class: kernels.Decode, Rows: 8, Samples: 8, Queries: 4},
		{Class: kernels.Prefill, Rows: 1, Samples: 1},
		{Class: kernels.Prefill, Rows: 8},
		{Class: kernels.Prefill, Rows: 8, Samples: 3},
	} {
		var l launches
		if err := m.Forward(&l, memory, sh); err != nil {
			t.Fatal(err)
		}
		found := 0
		for i, op := range l.ops {
			a, ok := op.(kernels.Attend)
			if !ok {
				continue
			}
			found++
			if !a.AfterQKV {
				t.Errorf("%+v: attention of layer %d is not after its QKV", sh, a.Layer)
			}
			if m.Config.Latent != nil {
				followsLatentQKV(t, l.ops[i-2:i+2], a, sh)
				continue
			}
			q, ok := l.ops[i-1].(kernels.QKV)
			defers := sh.Class == kernels.Decode && (m.Config.Bias || m.Config.HeadNorms || m.Config.WidthNorms) &&
				a.Queries < 2 && !q.QueriesOnly && !kernels.WideHeads(a.KV.HeadDim)
			if a.Post.IsZero() == defers {
				t.Errorf("%+v: attention applies QK post-processing: %t", sh, !a.Post.IsZero())
			}
			if !ok || q.T != a.T || q.Rows != a.Rows || q.KV != a.KV || q.Layer != a.Layer || q.Out != a.Q ||
				q.Class != a.Class || q.DeferRoPE && q.Post() != a.Post || q.DeferRoPE == a.Post.IsZero() {
				t.Errorf("%+v: attention of layer %d follows %s, wants its QKV", sh, a.Layer, l.ops[i-1].Kernel())
			}
		}
		want := m.Config.Layers
		if sh.Class == kernels.Prefill && sh.Samples == 0 { // the pass ends at the last QKV
			want--
		}
		switch { // the draft model, here the same, ends there too, or has a pass for each draft
		case sh.Follow || sh.Class == kernels.Prefill:
			want += m.Config.Layers - 1
		case sh.Queries > 1:
			want += (sh.Queries - 1) * m.Config.Layers
		}
		if sh.Class == kernels.Prefill && sh.Samples > 0 {
			onlySampled(t, l.ops, sh, m.Config)
		}
		if found != want {
			t.Errorf("%+v: %d attentions, wants %d", sh, found, want)
		}
	}
}

// followsLatentQKV checks that attention over latents comes after their QKV and the product of its queries, and before
// that of its results.
func followsLatentQKV(t *testing.T, ops []device.Op, a kernels.Attend, sh model.Shape) {
	t.Helper()
	qkv, ok := ops[0].(kernels.LatentQKV)
	absorb, product := ops[1].(kernels.HeadProduct)
	expand, another := ops[3].(kernels.HeadProduct)
	if !ok || !product || !another || qkv.Out != a.Q || absorb.Out != a.Q || absorb.In != qkv.Products ||
		expand.In != a.Out || qkv.T != a.T || absorb.T != a.T || expand.T != a.T || qkv.Layer != a.Layer ||
		qkv.KV != a.KV || !a.Post.IsZero() || !a.Handover.Rounded.IsZero() {
		t.Errorf("%+v: attention of layer %d is among %s, %s, %s", sh, a.Layer, ops[0].Kernel(), ops[1].Kernel(),
			ops[3].Kernel())
	}
}

// onlySampled checks that each op after the last attention of a prefill pass has a row index
// and as many rows as there are samples.
func onlySampled(t *testing.T, ops []device.Op, sh model.Shape, c model.Config) {
	t.Helper()
	last, listed, want := len(ops)-1, 0, 5
	if c.NormsAfter || c.Experts != nil && c.Experts.Shared > 0 {
		want += 2 // norms after, or shared experts
	}
	if c.Experts != nil && c.Experts.Beside {
		want += 4 // both of these, and a norm of each result
	}
	if c.PerLayer > 0 {
		want += 4 // two products, the gate between them, and a norm after
	}
	for last >= 0 && ops[last].Kernel() != (kernels.Attend{}).Kernel() {
		last--
	}
	if a, ok := ops[last].(kernels.Attend); !ok || a.Handover.Rounded.Bytes() > 0 || a.T != sh.Rows {
		t.Errorf("%+v: the last attention is %+v, wants one over all rows that writes Out", sh, ops[last])
	}
	for _, op := range ops[last+1:] {
		rows, list := 0, int64(0)
		switch o := op.(type) {
		case kernels.GatherRows:
			rows, list = o.N, 4*int64(o.N)
		case kernels.Projection:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.GateUp:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.Route:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.ExpertGateUp:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.ExpertDown:
			rows, list = o.T, o.RowIndex.Bytes()
			listed-- // a layer has three ops of experts in place of two
		case kernels.Experts:
			rows, list = o.Route.T, o.Route.RowIndex.Bytes()
			listed++ // in place of two ops
		case kernels.AddNorm:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.PerLayerGate:
			rows, list = o.T, o.RowIndex.Bytes()
		case kernels.Head:
			rows, list = o.N, o.Rows.Sample.Bytes()
		default:
			continue // sample
		}
		listed++
		if rows != sh.Samples || list < 4*int64(rows) {
			t.Errorf("%+v: %s has %d rows and a row index of %d bytes, wants %d rows",
				sh, op.Kernel(), rows, list, sh.Samples)
		}
	}
	if listed != want {
		t.Errorf("%+v: %d ops of sampled rows, wants %d: gather, output, gate and up, down, head, and norms after, shared experts and embeddings of the layer", sh,
			listed, want)
	}
}

// The device counts steps modulo 2^32; the place in a ring is right across that only for powers of two.
func TestRingsArePowersOfTwo(t *testing.T) {
	h, m := embedded(t)
	for _, n := range []int{-2, 0, 3, 6} {
		_, err := m.NewStepMemory(h, model.Geometry{MaxRows: 8, Slots: 8, MaxSamples: 8, Context: m.Config.Context,
			PageTokens: 16, Pages: m.Config.Context / 16, RingSlots: n})
		if !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%d entries: %v, wants ErrBadShape", n, err)
		}
	}
}

// Step memory for a draft model needs one.
func TestDraftModelIsGiven(t *testing.T) {
	h, m := embedded(t)
	_, err := m.NewStepMemory(h, model.Geometry{MaxRows: 8, Slots: 8, MaxSamples: 8, Context: m.Config.Context,
		PageTokens: 16, Pages: m.Config.Context / 16, RingSlots: 2, Drafter: model.ModelDrafter})
	if !errors.Is(err, device.ErrBadShape) {
		t.Errorf("%v, wants ErrBadShape", err)
	}
}
