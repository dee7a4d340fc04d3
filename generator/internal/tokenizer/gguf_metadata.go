package tokenizer

// ggufMetadata is metadata that is about to be written, by key.
type ggufMetadata map[string]any

// String returns a text.
func (m ggufMetadata) String(key string) (value string, ok bool) { return valueOf[string](m, key) }

// Bool returns a truth value.
func (m ggufMetadata) Bool(key string) (value, ok bool) { return valueOf[bool](m, key) }

// Uint returns a number.
func (m ggufMetadata) Uint(key string) (value uint64, ok bool) {
	n, ok := valueOf[uint32](m, key)
	return uint64(n), ok
}

// Strings returns a list of texts.
func (m ggufMetadata) Strings(key string) (values []string, ok bool) {
	return valueOf[[]string](m, key)
}

// Ints returns a list of whole numbers.
func (m ggufMetadata) Ints(key string) (values []int64, ok bool) {
	list, ok := valueOf[[]int32](m, key)
	for _, n := range list {
		values = append(values, int64(n))
	}
	return values, ok
}

// Floats returns a list of numbers.
func (m ggufMetadata) Floats(key string) (values []float64, ok bool) {
	list, ok := valueOf[[]float32](m, key)
	for _, n := range list {
		values = append(values, float64(n))
	}
	return values, ok
}

func valueOf[T any](m ggufMetadata, key string) (value T, ok bool) {
	value, ok = m[key].(T)
	return value, ok
}
