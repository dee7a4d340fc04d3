package model_test

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// peerRanks are simulated ranks that say that they address each other's memory, as GPUs do.
type peerRanks struct{ *device.HostRanks }

func (d peerRanks) Capabilities() device.Capabilities {
	c := d.HostRanks.Capabilities()
	set := *c.Ranks
	set.Signals.Inbox = device.PeerInbox
	c.Ranks = &set
	return c
}

// ranksTagRig returns a rig on a device of several ranks.
func ranksTagRig(t *testing.T, dev device.Device, c model.Config, blocks, halves string) *tagRig {
	t.Helper()
	c.Ranks = dev.Capabilities().Ranks.Count
	r := &tagRig{t: t}
	var err error
	if r.m, err = model.Load(dev, c, mixed{zerosOf(c), blocks, halves}, func(float64) {}); err != nil {
		t.Fatal(err)
	}
	g := model.Geometry{MaxRows: 8, Slots: 4, MaxSamples: 8, Context: c.Context, PageTokens: 16, Pages: 16, RingSlots: 2,
		Masks: 4, KVType: kernels.BF16}
	if r.memory, err = r.m.NewStepMemory(dev, g); err != nil {
		t.Fatal(err)
	}
	return r
}

// ranksTagConfigs are families of which passes of several ranks have tagged values.
func ranksTagConfigs() map[string]model.Config {
	all := taggedConfigs()
	delete(all, "sinks")
	return all
}

// In passes of one row that is sampled, of ranks that address each other's memory, each op takes what the op before has
// given. Where other ranks need an op's results, the op also names an exchange, for devices without tagged kernels.
func TestTaggedValuesFollowThePassOfRanks(t *testing.T) {
	for name, c := range ranksTagConfigs() {
		for _, n := range []int{2, 4} {
			r := ranksTagRig(t, peerRanks{newRanks(t, n)}, c, "", "")
			d := &tagDevice{t: t, tags: map[device.Buffer]int{}, unread: map[device.Buffer]bool{}}
			for range 2 {
				ops := r.ops(model.Shape{Rows: 1, Samples: 1})
				if got := tagged(ops); got != taggedOps(c, 1) {
					t.Errorf("%s: %d ops with tags on %d ranks, wants %d", name, got, n, taggedOps(c, 1))
				}
				for _, op := range ops {
					if err := op.Check(); err != nil {
						t.Fatalf("%s, %s: %v", name, op.Kernel(), err)
					}
					if tags := tagsOf(op); !tags.Pass.IsZero() && tags.Ranks != n {
						t.Errorf("%s: %s has tags of %d ranks", name, op.Kernel(), tags.Ranks)
					}
					d.run(op)
				}
			}
		}
	}
}

// Without peer access, without a sample, in other passes, over other weights and with unequal parts ranks exchange.
func TestOtherPassesOfRanksHaveNoTags(t *testing.T) {
	one := model.Shape{Rows: 1, Samples: 1}
	hosts := newRanks(t, 2)
	if n := tagged(ranksTagRig(t, hosts, tagConfig(), "", "").ops(one)); n > 0 {
		t.Errorf("%d ops with tags on ranks that do not address each other's memory", n)
	}
	dev := peerRanks{hosts}
	r := ranksTagRig(t, dev, tagConfig(), "", "")
	for _, s := range []model.Shape{{Rows: 1}, {Rows: 2, Samples: 2}, {Rows: 1, Samples: 1, Apart: true}} {
		if n := tagged(r.ops(s)); n > 0 {
			t.Errorf("%+v: %d ops with tags", s, n)
		}
	}
	for _, blocks := range []string{"proj embed", "proj", "embed", "1.mlp", "self_attn"} {
		if n := tagged(ranksTagRig(t, dev, tagConfig(), blocks, "").ops(one)); n > 0 {
			t.Errorf("%s over codes: %d ops with tags", blocks, n)
		}
	}
	for i, change := range []func(c *model.Config){
		func(c *model.Config) { *c = tagSinks() }, func(c *model.Config) { c.WidthNorms = true },
	} {
		c := tagConfig()
		change(&c)
		if n := tagged(ranksTagRig(t, dev, c, "", "").ops(one)); n > 0 {
			t.Errorf("change %d: %d ops with tags", i, n)
		}
	}
	eight := peerRanks{newRanks(t, 8)} // of 64 columns four have a tile
	for i, change := range []func(c *model.Config){
		func(*model.Config) {}, func(c *model.Config) { c.Hidden = 64 }, func(c *model.Config) { c.Inner = 64 },
		func(c *model.Config) { *c = tagExperts() },
	} {
		c := tagConfig()
		change(&c)
		if c.Heads = 8; i != 2 {
			c.Inner = 256
		}
		if n := tagged(ranksTagRig(t, eight, c, "", "").ops(one)); (n > 0) != (i == 0) {
			t.Errorf("eight ranks, change %d: %d ops with tags", i, n)
		}
	}
}

// Tags of ranks are refused beside other exchanges, other weights and other sums.
func TestTagsOfRanksAreChecked(t *testing.T) {
	dev := peerRanks{newRanks(t, 2)}
	one := model.Shape{Rows: 1, Samples: 1}
	ops := ranksTagRig(t, dev, tagConfig(), "", "").ops(one)
	ops = append(ops, ranksTagRig(t, dev, tagExperts(), "", "").ops(one)...)
	for i, op := range ops {
		tags := tagsOf(op)
		if tags.Pass.IsZero() {
			continue
		}
		for _, ranks := range []int{-1, 1, device.MaxRanks + 1} {
			bad := tags
			bad.Ranks = ranks
			if withTags(op, bad).Check() == nil {
				t.Errorf("op %d, %s: tags of %d ranks are right", i, op.Kernel(), ranks)
			}
		}
		for j, other := range otherOnRanks(op) {
			if other.Check() == nil {
				t.Errorf("op %d, %s: change %d is right", i, op.Kernel(), j)
			}
		}
	}
}

// otherOnRanks returns ops like one with tags of ranks which there are not.
func otherOnRanks(op device.Op) (all []device.Op) {
	change := func(op device.Op) { all = append(all, op) }
	switch o := op.(type) {
	case kernels.Attend:
		a, b := o, o
		a.Spread, b.Sinks = kernels.Exchange{}, o.Q.Slice(0, int64(4*o.Heads))
		b.Spread = kernels.Exchange{Part: o.Spread.Part, All: o.Spread.All, Signals: o.Spread.Signals, T: 1,
			Width: o.Spread.Width, PartCols: o.Spread.PartCols, Ranks: o.Spread.Ranks} // which nobody takes
		change(a)
		change(b)
	case kernels.Projection:
		a, b, c, d := o, o, o, o
		a.Spread, a.Before, a.Store = kernels.Exchange{}, kernels.Exchange{}, false
		b.W.DType, c.Spread.X, d.Spread.Width = kernels.F16, device.Buffer{}, o.Spread.Width-16
		change(a)
		change(b)
		change(c)
		change(d)
	case kernels.GateUp:
		o.Spread = kernels.Exchange{}
		change(o)
	case kernels.Experts:
		a, b := o, o
		a.Down.Spread.Width, a.Tags = o.Down.Spread.Width-16, kernels.Tags{}
		b.GateUp.Spread.Width, b.Tags = o.GateUp.Spread.Width-16, kernels.Tags{}
		change(a)
		change(b)
	}
	return all
}
