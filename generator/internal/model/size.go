package model

import "reel.internal/reel/kernels"

// StepBytes returns the bytes of the matrices that a decode step of one row reads. An embedding
// that is not also the head does not count, since a step reads only a few of its rows, nor do experts that are not
// chosen.
func (m *Model) StepBytes() int64 {
	total := m.WeightBytes()
	if m.head.Data != m.embedding.Data {
		total -= m.embedding.Data.Bytes()
	}
	total -= m.perLayer.table.Data.Bytes()
	if e := m.Config.Experts; e != nil {
		all := m.expertBytes()
		total -= all - all/int64(e.Count)*int64(e.Used)
	}
	return total
}

// expertBytes returns the bytes of the matrices of all experts.
func (m *Model) expertBytes() (total int64) {
	for i := range m.layers {
		for _, w := range m.layers[i].experts() {
			total += w.Data.Bytes()
		}
	}
	return total
}

// PageBytes returns the size of the model's part of a KV page of so many tokens, on all ranks: keys and values, and an
// EAGLE-3 head's feature.
func (c Config) PageBytes(kvType kernels.DType, pageTokens int) int64 {
	n := int64(c.ranks()) * poolOf(kernels.KV{DType: kvType, PageTokens: pageTokens}, c.LayersKV()).PageBytes()
	if c.Eagle != nil {
		n += kernels.NewFeatures(1, pageTokens, 1, 0, c.Hidden).Pool.PageBytes()
	}
	return n
}

// WeightBytes returns the bytes of all matrices on the device. A head that is the embedding
// counts once.
func (m *Model) WeightBytes() int64 {
	total := m.embedding.Data.Bytes() + m.eagle.features.Data.Bytes() + m.perLayer.table.Data.Bytes() +
		m.perLayer.projection.Data.Bytes()
	if m.head.Data != m.embedding.Data {
		total += m.head.Data.Bytes()
	}
	for i := range m.layers {
		for _, w := range m.layers[i].dense() {
			total += w.Data.Bytes()
		}
	}
	return total + m.expertBytes()
}
