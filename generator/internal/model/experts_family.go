package model

import (
	"slices"

	"reel.internal/reel/kernels"
)

// The families with experts.

func qwen3MoEDefaults() configFile {
	return configFile{KVHeads: new(4), HeadDim: 128, Window: new(4096), ExpertsUsed: 8, ExpertInner: 768,
		SparseStep: 1}
}

func mixtralDefaults() configFile {
	return configFile{KVHeads: new(8), ExpertsUsed: 2}
}

// experts returns what the families have in common. absent is the number of experts where config.json has none.
func (f *configFile) experts(absent int) *Experts {
	e := &Experts{Count: absent, Used: f.ExpertsUsed, Inner: f.ExpertInner, Normalise: f.NormTopK,
		Scoring: kernels.SoftmaxOfAll}
	if f.Experts != 0 {
		e.Count = f.Experts
	}
	if f.LocalExperts != 0 {
		e.Count = f.LocalExperts
	}
	return e
}

// qwen3Experts are in the layers that mlp_only_layers does not name and whose number is a multiple of
// decoder_sparse_step. (transformers: Qwen3MoeDecoderLayer.)
func qwen3Experts(f *configFile) *Experts {
	e := f.experts(128)
	e.dense(f, func(layer int) bool {
		return slices.Contains(f.DenseLayers, layer) || f.SparseStep < 1 || (layer+1)%f.SparseStep != 0
	})
	return e
}

// dense sets the layers without experts.
func (e *Experts) dense(f *configFile, is func(layer int) bool) {
	for i := range min(max(f.Layers, 0), maxLayers) {
		e.Dense = append(e.Dense, is(i))
	}
	if !slices.Contains(e.Dense, true) {
		e.Dense = nil
	}
}

func mixtralExperts(f *configFile) *Experts {
	e := f.experts(8)
	e.Inner, e.Normalise = f.Inner, true
	return e
}
