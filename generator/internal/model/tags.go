package model

import (
	"slices"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// tagMemory is where the ops of a pass of one row leave values for each other with the number of their pass and layer, see
// [kernels.Tags]; none if the model's passes have no such values.
type tagMemory struct {
	pass     device.Buffer // uint32 [1]: the number of the pass
	x        device.Buffer // the residual stream
	qkv      device.Buffer // q, k and v as the products compute them, of several ranks this one's heads
	attended device.Buffer // pairs of results of attention
	inner    device.Buffer // pairs of results of the gates
	logits   device.Buffer // of a router
	choice   device.Buffer // a row's experts and their weights
}

// tagBuffers lists that memory. It is cleared: a number that is there by chance could be taken for that of a pass.
func (s *StepMemory) tagBuffers(dev tracked, c Config) []wantedBuffer {
	if !c.tags() || s.asksModel() || !kernels.CanTagHeads(c.HeadDim, s.KVType, c.Sinks) {
		return nil
	}
	q, own := c.Heads*c.HeadDim, (c.heads()+2*c.kvHeads())*c.HeadDim
	list := []wantedBuffer{
		{&s.tags.pass, dev.Alloc, 4},
		{&s.tags.x, dev.Alloc, kernels.TagBytes(c.Hidden)},
		{&s.tags.qkv, dev.Alloc, kernels.TagBytes(own)},
		{&s.tags.attended, dev.Alloc, kernels.TagBytes(q / 2)},
		{&s.tags.inner, dev.Alloc, kernels.TagBytes(c.innerWidth() / 2)},
	}
	if e := c.Experts; e != nil {
		list = append(list, wantedBuffer{&s.tags.logits, dev.Alloc, kernels.TagBytes(e.Count)},
			wantedBuffer{&s.tags.choice, dev.Alloc, kernels.TagBytes(2 * e.Used)})
	}
	return list
}

// activations returns the buffers that a pass writes before it reads them.
func (t tagMemory) activations() []device.Buffer {
	if t.pass.IsZero() {
		return nil
	}
	list := []device.Buffer{t.x, t.qkv, t.attended, t.inner}
	if !t.choice.IsZero() {
		list = append(list, t.logits, t.choice)
	}
	return list
}

// tags reports whether every op of the config's passes of one row can take and give tagged values. It cannot where a
// norm comes between a result and the residual stream, where all rows share experts, or experts have groups; nor on
// ranks of unequal parts.
func (c Config) tags() bool {
	return (c.ranks() == 1 || c.tagsOnRanks()) && c.sharedWidth() == 0 && !c.groupsExperts() && c.Latent == nil &&
		c.Eagle == nil && c.Embedding == nil && !c.NormsAfter && !c.WidthNorms && c.ScoreCap == 0 &&
		c.Layers <= kernels.MostTaggedLayers
}

// tagsOnRanks reports whether ranks have equal parts of all that they give each other, and an attention for that.
func (c Config) tagsOnRanks() bool {
	equal := func(width int) bool { return c.part(width)*c.ranks() == width }
	return c.dividesHeads() && !c.Sinks && equal(c.Hidden) && equal(c.Inner) &&
		(c.Experts == nil || equal(c.Experts.Inner))
}

// canTag reports whether there are kernels for tagged values over all weights of a pass. Their types and shapes are
// those that the model was loaded with.
func (m *Model) canTag() bool {
	for i := range m.layers {
		qkv, output, gateUp, down := m.layers[i].products()
		if !kernels.CanTag(true, qkv...) || !kernels.CanTag(false, output...) {
			return false
		}
		if m.Config.ranks() > 1 && !kernels.CanTagOnRanks(slices.Concat(qkv, output, gateUp, down)...) {
			return false
		}
		if e := m.Config.Experts; m.layers[i].sparse() {
			if !kernels.CanTagExperts(gateUp[0], gateUp[1], down[0], e.Count, e.Used) {
				return false
			}
		} else if !kernels.CanTag(true, gateUp...) || !kernels.CanTag(false, down...) {
			return false
		}
	}
	return kernels.CanTag(false, m.embedding) && kernels.CanTag(true, m.head) &&
		(m.Config.ranks() == 1 || kernels.CanTagOnRanks(m.head))
}

// tagged reports whether the values of the pass are tagged: one row's, over weights for which there are kernels. On
// several ranks these address each other's memory, and the row is sampled: then each rank takes all that the others
// have written to its residual stream before it begins the next pass, where that is overwritten.
func (p *pass) tagged() bool {
	if p.model.Config.ranks() > 1 && (p.Samples == 0 || p.memory.signals.Inbox != device.PeerInbox) {
		return false
	}
	return !p.memory.tags.pass.IsZero() && !p.Apart && p.Class == kernels.Decode && p.Rows == 1 && p.Samples <= 1 &&
		p.model.takesTags
}

// layerTags are the tags of a layer's ops.
type layerTags struct{ qkv, attend, output, gateUp, down, experts kernels.Tags }

// layerTags returns those of layer i. The residual stream has the number 0 from embed, 2i+1 after the attention of layer i
// and 2i+2 after its feed-forward; other values have the number of the residual stream that they are for.
func (p *pass) layerTags(i int) (l layerTags) {
	if !p.tags {
		return l
	}
	t, before, of := p.memory.tags, 2*i, &p.model.layers[i]
	attended, fed := before+1, before+2
	l.qkv = p.tagsOf(t.x, before, t.qkv, attended)
	l.attend = p.tagsOf(t.qkv, attended, t.attended, attended)
	l.attend.ForCodes = of.output.DType.Quantised()
	l.output = p.tagsOf(t.attended, attended, t.x, attended)
	l.gateUp = p.tagsOf(t.x, attended, t.inner, fed)
	l.gateUp.ForCodes = of.down.DType.Quantised()
	l.down = p.tagsOf(t.inner, fed, t.x, fed)
	l.experts = p.tagsOf(t.x, attended, t.x, fed)
	return l
}

// tagsOf returns the tags of an op that takes and gives values with these numbers.
func (p *pass) tagsOf(in device.Buffer, taken int, out device.Buffer, given int) kernels.Tags {
	t := kernels.Tags{Pass: p.memory.tags.pass, In: in, Taken: taken, Out: out, Given: given}
	if n := p.model.Config.ranks(); n > 1 {
		t.Ranks = n
	}
	return t
}

// embedTags returns the tags of embed, which begins a pass.
func (p *pass) embedTags() (t kernels.Tags) {
	if p.tags {
		t = p.tagsOf(device.Buffer{}, 0, p.memory.tags.x, 0)
	}
	return t
}

// headTags returns those of the head.
func (p *pass) headTags() (t kernels.Tags) {
	if p.tags {
		t = p.tagsOf(p.memory.tags.x, 2*len(p.model.layers), device.Buffer{}, 0)
	}
	return t
}
