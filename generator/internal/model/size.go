package model

import "reel.internal/reel/kernels"

// StepBytes returns the bytes of the matrices that a decode step reads whole. An embedding
// that is not also the head does not count, since a step reads only a few of its rows.
func (m *Model) StepBytes() int64 {
	if m.Config.TiedHead {
		return m.WeightBytes()
	}
	return m.WeightBytes() - m.embedding.Data.Bytes()
}

// PageBytes returns the size of the model's part of a KV page of so many tokens: keys and values, and an EAGLE-3 head's
// feature.
func (c Config) PageBytes(kvType kernels.DType, pageTokens int) int64 {
	n := poolOf(kernels.KV{DType: kvType, PageTokens: pageTokens}, c.layersKV()).PageBytes()
	if c.Eagle != nil {
		n += kernels.NewFeatures(1, pageTokens, 1, 0, c.Hidden).Pool.PageBytes()
	}
	return n
}

// WeightBytes returns the bytes of all matrices on the device. A head that is the embedding
// counts once.
func (m *Model) WeightBytes() int64 {
	total := m.embedding.Data.Bytes() + m.eagle.features.Data.Bytes()
	if !m.Config.TiedHead {
		total += m.head.Data.Bytes()
	}
	for i := range m.layers {
		for _, w := range m.layers[i].matrices() {
			total += w.Data.Bytes()
		}
	}
	return total
}
