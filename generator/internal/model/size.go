package model

// StepBytes is the size of the matrices that a decode step reads: of an embedding
// that is not the head it reads one row for each sequence.
func (m *Model) StepBytes() int64 {
	if m.Config.TiedHead {
		return m.WeightBytes()
	}
	return m.WeightBytes() - m.embedding.Data.Bytes()
}

// WeightBytes is the size of all matrices as the device holds them; a head that
// is the embedding counts once.
func (m *Model) WeightBytes() int64 {
	total := m.embedding.Data.Bytes()
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
