package model

import (
	"maps"
	"slices"

	"reel.internal/reel/kernels"
)

// A mixed pass has the next tokens of running sequences and tokens of prompts, so weights are read once for both. It is a
// prefill pass that begins with generated rows, padding included. Their results are those of a decode pass, bit for bit: see
// [kernels.Generated]. After the last attention the rows of running sequences are sampled rows like the last ones of
// prompts.

// MixedOn is what the rows of mixed passes depend on beside the model.
type MixedOn struct {
	GPU, Hopper bool                     // whether it is a GPU, and not the host; whether that is a Hopper
	Formats     map[string]kernels.DType // of the matrices by tensor, as a plan has them
	Chunk       int                      // prompt tokens of a step at most
	MaxRows     int                      // of a pass, those of generated rows and of padding included
}

// MixedRows returns the rows of a mixed pass with the next tokens of n running sequences: the generated rows, padding
// included, and the most prompt rows beside them. Both are 0 if there is no such pass, or if prompts would have fewer rows
// than running sequences: they get as much in turn with decode steps. Of numbers that have such a pass, more sequences
// never have fewer generated rows. Several ranks have none, nor have models for embeddings.
func (c Config) MixedRows(on MixedOn, n int) (rows, most int) {
	if n < 1 || c.ranks() > 1 || c.Embedding != nil || c.Eagle != nil {
		return 0, 0
	}
	rows, most = n, on.Chunk // the host has one order of sums for all rows
	if on.GPU {
		rows, most = c.mixedRowsOnGPU(on, n)
	}
	if most = min(most, on.Chunk, on.MaxRows-rows); rows < n || most < min(rows, on.Chunk) {
		return 0, 0
	}
	return rows, most
}

// mixedRowsOnGPU returns the generated rows of a mixed pass on a GPU with n running sequences, padding included, and the
// most rows of prompts beside them that its kernels take; 0: there are no kernels for it. They are for dense models in one
// type of 16 bits. What their attention gives is added to the residual stream without a bias, and without a norm before.
func (c Config) mixedRowsOnGPU(on MixedOn, n int) (rows, most int) {
	if !on.Hopper || c.Experts != nil || c.Latent != nil || c.NormsAfter || c.OutputBias || on.MaxRows < kernels.LeastMixed {
		return 0, 0
	}
	if !OneType(on.Formats) {
		return 0, 0
	}
	of := func(rows, cols int) kernels.Weight {
		return kernels.Weight{DType: kernels.BF16, Rows: rows, Cols: cols}
	}
	q, kv, gate := of(c.Heads*c.HeadDim, c.Hidden), of(c.KVHeads*c.HeadDim, c.Hidden), of(c.Inner, c.Hidden)
	for _, op := range [][]kernels.Weight{{q, kv, kv}, {of(c.Hidden, q.Rows)}, {gate, gate}, {of(c.Hidden, c.Inner)}} {
		if !kernels.CanMix(op...) {
			return 0, 0
		}
	}
	return kernels.MixedRows(n)
}

// OneType reports whether a GPU packs all matrices of these formats as one type of 16 bits.
func OneType(formats map[string]kernels.DType) bool {
	all := slices.Collect(maps.Values(formats))
	return !slices.ContainsFunc(all, kernels.DType.Quantised) && kernels.CheckTogether(true, all...) == nil
}
