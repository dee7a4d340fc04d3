package graphs

import "slices"

// Lattice returns the keys to capture at start, largest first: prefill of each of
// the token counts that fit the chunk, and the decode buckets of each batch.
func Lattice(counts []int, chunk int, batches ...int) []Key {
	var keys []Key
	for _, n := range counts {
		if n >= 1 && n <= chunk {
			keys = append(keys, Prefill(n))
		}
	}
	for _, batch := range batches {
		for _, n := range decodeBuckets(batch) {
			keys = append(keys, Decode(n))
		}
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return b.Tokens() - a.Tokens() })
	return slices.Compact(keys)
}

// DefaultCounts returns 1 to 50, then the multiples of 16 up to 512 and of 64 up to the
// chunk, and the chunk. Every count of rows at which a kernel is full is a multiple of 16;
// above 512 padding to 64 is a tenth of a pass at most.
func DefaultCounts(chunk int) []int {
	var counts []int
	for n := 1; n < chunk; n++ {
		if n <= 50 || n%16 == 0 && n <= 512 || n%64 == 0 {
			counts = append(counts, n)
		}
	}
	return append(counts, chunk)
}

// decodeBuckets returns the row counts 1, 2, 3, 4, then every 4th up to 16, every 8th
// up to 64, every 32nd above, and batch itself. Above 64 a start would take longer with
// more of them, and few engines run so many sequences: the roller captures what is used.
func decodeBuckets(batch int) []int {
	var buckets []int
	for n := 1; n < batch; {
		buckets = append(buckets, n)
		switch {
		case n < 4:
			n++
		case n < 16:
			n += 4
		case n < 64:
			n += 8
		default:
			n += 32
		}
	}
	return append(buckets, batch)
}
