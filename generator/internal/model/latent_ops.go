package model

import (
	"slices"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// latentMemory is the step memory of latent attention.
type latentMemory struct {
	products device.Buffer // as in [kernels.LatentQKV]
	sums     device.Buffer // float32 [MaxRows][Heads][Rank]: results of attention
	identity device.Buffer // float32 [16][1, 0]
	zero     device.Buffer // int32 [MaxRows]
	index    device.Buffer // int32 [MaxRows]: 0, 1, 2, …
}

// activations returns the buffers that a pass writes before it reads them.
func (l *latentMemory) activations() []device.Buffer {
	if l.products.IsZero() {
		return nil
	}
	return []device.Buffer{l.products, l.sums}
}

// latentBuffers lists what latent attention works in.
func (s *StepMemory) latentBuffers(dev tracked, c Config) []wantedBuffer {
	if c.Latent == nil {
		return nil
	}
	l, m, rows := c.Latent, &s.latent, int64(s.MaxRows)
	return []wantedBuffer{
		{&m.products, dev.Uncleared, 4 * rows * int64(c.Heads*c.HeadDim+l.Rank+l.Rope+l.QueryRank)},
		{&m.sums, dev.Uncleared, 4 * rows * int64(c.Heads*l.Rank)},
		{&m.zero, dev.Alloc, 4 * rows},
		{&m.index, func(size int64) (device.Buffer, error) { return kernels.LoadIndex(dev, int(size/4)) }, 4 * rows},
		{&m.identity, func(int64) (device.Buffer, error) {
			return kernels.LoadVector(dev, slices.Repeat([]float32{1, 0}, 16))
		}, 0},
	}
}

// keys launches what gives the rows of layer i their queries, and the pool their keys and values.
func (p *pass) keys(i int, h kernels.Handover) {
	if p.model.Config.Latent != nil {
		p.launch(p.latentQKV(i))
		return
	}
	p.launch(p.qkv(i, h))
}

// attention launches an attention of layer i, and of latent attention what brings queries to the latents and their sums
// to values.
func (p *pass) attention(i int, attend kernels.Attend) {
	if p.model.Config.Latent == nil {
		p.attendParts(i, attend)
		return
	}
	p.launch(p.absorb(i))
	p.launch(attend)
	p.launch(p.expand(i))
}

func (p *pass) latentQKV(i int) kernels.LatentQKV {
	m, s, w := p.model, p.memory, &p.model.layers[i]
	return kernels.LatentQKV{
		X: s.x, Norm: w.attentionNorm, Eps: m.Config.layerEps(), LatentEps: latentEps,
		QueryDown: w.latent.queryDown, QueryNorm: w.latent.queryDownNorm, Q: w.q, C: w.latent.down,
		LatentNorm: w.latent.norm, RoPE: m.rope, Rows: s.Rows, Slots: s.Slots, KV: s.kvOf(i), Layer: s.kvLayer(i),
		Products: s.latent.products, Out: s.q, Identity: s.latent.identity, Zero: s.latent.zero,
		Index: s.latent.index,
		T:     p.Rows, Hidden: m.Config.Hidden, Heads: m.Config.Heads, Nope: m.Config.Latent.Nope,
		Class: p.Class, Workspace: s.hiddenWorkspace(),
	}
}

// absorb takes the part of queries that RoPE does not rotate to the elements of latents.
func (p *pass) absorb(i int) kernels.HeadProduct {
	c, s := p.model.Config, p.memory
	return kernels.HeadProduct{W: p.model.layers[i].latent.absorb, In: s.latent.products, Out: s.q, T: p.Rows,
		Heads: c.Heads, InStride: c.HeadDim, OutStride: c.queryDim(), Class: p.Class}
}

// expand takes sums of latents to values of heads.
func (p *pass) expand(i int) kernels.HeadProduct {
	c, s := p.model.Config, p.memory
	return kernels.HeadProduct{W: p.model.layers[i].latent.expand, In: s.latent.sums, Out: s.attended, T: p.Rows,
		Heads: c.Heads, InStride: c.Latent.Rank, OutStride: c.Latent.Value, Class: p.Class}
}
