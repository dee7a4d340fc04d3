package tokenizer

// isGemma4 reports whether the tokenizer is written as model gemma4. Its texts begin with bos
// whatever tokenizer.json says, so ids are compared without it.
func (w *ggufWriter) isGemma4() bool { return w.model.Architecture == "gemma4" && w.bpe.ByteFallback }

// merged writes a model over characters with its merges, as llama.cpp's converter does for Gemma 4.
func (w *ggufWriter) merged(pairs []GGUFPair) ([]GGUFPair, error) {
	merges, err := w.merges()
	if err != nil {
		return nil, err
	}
	scores := make([]float32, len(w.tokens))
	for id := range scores {
		scores[id] = -1000
	}
	pairs = append(pairs, GGUFPair{keys + "model", "gemma4"}, GGUFPair{keys + "merges", merges},
		GGUFPair{keys + "scores", scores}, GGUFPair{keys + "add_space_prefix", false})
	return pairs, w.check(pairs)
}
