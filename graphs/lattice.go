package graphs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
		for _, n := range DecodeBuckets(batch) {
			keys = append(keys, Decode(n))
		}
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return b.Tokens() - a.Tokens() })
	return slices.Compact(keys)
}

// DefaultCounts returns 1 to 50, then the multiples of 16 up to the chunk, and the
// chunk. Every count of rows at which a kernel is full is a multiple of 16.
func DefaultCounts(chunk int) []int {
	var counts []int
	for n := 1; n < chunk; n++ {
		if n <= 50 || n%16 == 0 {
			counts = append(counts, n)
		}
	}
	return append(counts, chunk)
}

// DecodeBuckets returns the row counts 1, 2, 3, 4, then every 4th up to 16, every 8th
// up to 64, every 16th above, and batch itself.
func DecodeBuckets(batch int) []int {
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
			n += 16
		}
	}
	return append(buckets, batch)
}

// maxCount bounds the token counts of a list. No chunk is larger.
const maxCount = 1 << 16

// ParseCounts parses a list such as "1-50,64,80" and returns the counts in rising
// order, each once. An empty list has no counts.
func ParseCounts(list string) ([]int, error) {
	var counts []int
	for _, part := range strings.Split(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		high := low
		if err == nil && ranged {
			high, err = strconv.Atoi(last)
		}
		if err != nil || low < 1 || high < low || high > maxCount {
			return nil, fmt.Errorf("graphs: %q is not a count or a range such as 1-50, from 1 to %d", part, maxCount)
		}
		for n := low; n <= high; n++ {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	return slices.Compact(counts), nil
}
