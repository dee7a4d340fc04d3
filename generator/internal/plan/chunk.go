package plan

import (
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/model"
)

// chunk returns the most prompt tokens of a step, at most the tokens of all sequences.
func (p Planner) chunk(context, batch int) int {
	chunk := p.Profile.chunk
	if p.Profile.kind == GPUProfile.kind && (p.Config.Experts != nil || p.Config.Embedding != nil) {
		chunk = largeChunk
	}
	if p.Config.Embedding != nil && p.wholeTiles() {
		chunk = max(chunk, p.Profile.longChunk)
	}
	return min(chunk, context*batch)
}

// longChunk returns the most prompt tokens of a step where one prompt is alone or many come at once: of a dense model
// in 16 bits that generates. 0: as many as of other steps. The scheduler divides them by two, so they are those of the
// profile, or a half of them, and so on, which fill the rounds of the products' kernels.
func (p Planner) longChunk(context, batch int) int {
	if p.Config.Embedding != nil || !p.wholeTiles() {
		return 0
	}
	rows := p.Profile.longChunk
	for rows >= context { // no prompt fills the context
		rows /= 2
	}
	if rows <= p.chunk(context, batch) {
		return 0
	}
	return rows
}

// mixedRows returns the MixedRows of an engine with these options.
func (p Planner) mixedRows(o engine.Options) func(n int) (rows, most int) {
	on := model.MixedOn{GPU: p.Profile.kind == GPUProfile.kind, Hopper: p.Profile.hopper, Formats: p.Formats, Chunk: o.Chunk,
		MaxRows: o.Geometry().MaxRows}
	return func(n int) (rows, most int) { return p.Config.MixedRows(on, n) }
}

// longPart is the most of the KV pages that the memory of long steps may cost.
const longPart = 1.0 / 16

// affordLong returns the sizes for a budget, and the planner without long steps if their memory costs too many KV pages,
// or those that the longest sequence needs.
func (p Planner) affordLong(context, batch int, budget int64) (Planner, Sizes) {
	s := p.size(context, batch, budget)
	if p.longChunk(context, batch) == 0 {
		return p, s
	}
	short := p
	short.Profile.longChunk = 0
	without := short.size(context, batch, budget)
	costs := float64(without.Pages - s.Pages)
	if costs > longPart*float64(without.Pages) || !s.Serves() && without.Serves() {
		return short, without
	}
	return p, s
}

// afforded returns the sizes of what a generator takes: without long steps if they cost too much.
func (p Planner) afforded(context, batch int, budget int64) Sizes {
	_, s := p.affordLong(context, batch, budget)
	return s
}

// wholeTiles reports whether long prompts go through the products of whole output tiles: all of a dense model in one type
// of 16 bits.
func (p Planner) wholeTiles() bool {
	return p.Config.Experts == nil && p.Config.Latent == nil && model.OneType(p.Formats)
}
