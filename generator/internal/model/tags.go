package model

import (
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// tagMemory is where the ops of a pass of one row leave values for each other with the number of their pass and layer, see
// [kernels.Tags]; none if the model's passes have no such values.
type tagMemory struct {
	pass     device.Buffer // uint32 [1]: the number of the pass
	x        device.Buffer // the residual stream
	qkv      device.Buffer // q, k and v as the products compute them
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
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	list := []wantedBuffer{
		{&s.tags.pass, dev.Alloc, 4},
		{&s.tags.x, dev.Alloc, kernels.TagBytes(c.Hidden)},
		{&s.tags.qkv, dev.Alloc, kernels.TagBytes(q + 2*kv)},
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

// tags reports whether the config's passes of one row consist of the ops that take and give tagged values, and no
// others: those on one rank whose results are added as they are, without experts that all rows share or groups of
// experts.
func (c Config) tags() bool {
	return c.ranks() == 1 && c.sharedWidth() == 0 && !c.groupsExperts() && c.Latent == nil && c.Eagle == nil &&
		c.Embedding == nil && !c.NormsAfter && !c.WidthNorms && c.ScoreCap == 0 && c.Layers <= kernels.MostTaggedLayers
}

// canTag reports whether there are kernels for tagged values over all weights of a pass. Their types and shapes are
// those that the model was loaded with.
func (m *Model) canTag() bool {
	for i := range m.layers {
		qkv, output, gateUp, down := m.layers[i].products()
		if !kernels.CanTag(true, qkv...) || !kernels.CanTag(false, output...) {
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
	return kernels.CanTag(false, m.embedding) && kernels.CanTag(true, m.head)
}

// tagged reports whether the values of the pass are tagged: one row's, over weights for which there are kernels.
func (p *pass) tagged() bool {
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
	l.qkv = kernels.Tags{Pass: t.pass, In: t.x, Taken: before, Out: t.qkv, Given: attended}
	l.attend = kernels.Tags{Pass: t.pass, In: t.qkv, Taken: attended, Out: t.attended, Given: attended,
		ForCodes: of.output.DType.Quantised()}
	l.output = kernels.Tags{Pass: t.pass, In: t.attended, Taken: attended, Out: t.x, Given: attended}
	l.gateUp = kernels.Tags{Pass: t.pass, In: t.x, Taken: attended, Out: t.inner, Given: fed,
		ForCodes: of.down.DType.Quantised()}
	l.down = kernels.Tags{Pass: t.pass, In: t.inner, Taken: fed, Out: t.x, Given: fed}
	l.experts = kernels.Tags{Pass: t.pass, In: t.x, Taken: attended, Out: t.x, Given: fed}
	return l
}

// embedTags returns the tags of embed, which begins a pass.
func (p *pass) embedTags() (t kernels.Tags) {
	if p.tags {
		t = kernels.Tags{Pass: p.memory.tags.pass, Out: p.memory.tags.x}
	}
	return t
}

// headTags returns those of the head.
func (p *pass) headTags() (t kernels.Tags) {
	if p.tags {
		t = kernels.Tags{Pass: p.memory.tags.pass, In: p.memory.tags.x, Taken: 2 * len(p.model.layers)}
	}
	return t
}
