// Package graphs keeps captured forward passes: which exist, which one serves a
// step, and which are captured or dropped next. It knows no model and no op; it
// is given a function that launches a pass.
//
// Nothing here is captured while somebody waits. Pool.Acquire answers at once
// with what there is; what is missing becomes a wish, and the Roller captures it
// in the background, within the budget.
package graphs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Key names a captured pass: all that its launches depend on. Everything else
// (tokens, positions, lengths, block tables, sampling parameters, seeds) is read
// on the device at fixed addresses.
type Key struct {
	Model   uint8 // which model of the process
	Rows    int32 // sequences; 1 for a prefill chunk
	Queries int32 // tokens of each: 1 for decode, the chunk for prefill
	Context int32 // context bucket in tokens; 0 is any
	Sampler uint8 // sampler class
	Segment uint8 // part of a pass that is captured in parts
	Variant uint8 // kernel choice
}

// Decode is the key of a decode step of n sequences.
func Decode(n int) Key { return Key{Rows: int32(n), Queries: 1} }

// Prefill is the key of a prefill step of n prompt tokens.
func Prefill(n int) Key { return Key{Rows: 1, Queries: int32(n), Segment: prefillSegment} }

// prefillSegment keeps a prefill chunk of one token apart from a decode step of
// one sequence: prompt tokens are prefill class, drawn ones decode class.
const prefillSegment = 1

// IsPrefill tells the two apart.
func (k Key) IsPrefill() bool { return k.Segment == prefillSegment }

// Tokens is the number of token rows of the pass.
func (k Key) Tokens() int { return int(k.Rows) * int(k.Queries) }

// String is as in "decode 8" or "prefill 64".
func (k Key) String() string {
	if k.IsPrefill() {
		return fmt.Sprintf("prefill %d", k.Queries)
	}
	return fmt.Sprintf("decode %d", k.Rows)
}

// family is what two keys must share for one to cover the other: all but sizes.
func (k Key) family() Key {
	k.Context = 0
	if k.IsPrefill() {
		k.Queries = 0
	} else {
		k.Rows = 0
	}
	return k
}

// Covers tells whether a graph of k can run a step of o, padded.
func (k Key) Covers(o Key) bool {
	fits := k.Context == 0 || o.Context != 0 && k.Context >= o.Context
	return k.family() == o.family() && k.Rows >= o.Rows && k.Queries >= o.Queries && fits
}

// Lattice is what is captured at start: prefill of each of the given token
// counts that the chunk holds, and the decode buckets up to each of the batches.
// Largest first.
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

// DefaultCounts are 1 to 50, then multiples of 16 up to the chunk, and the chunk. 208 is
// among them: the most tokens that a Hopper kernel multiplies at a time.
func DefaultCounts(chunk int) []int {
	var counts []int
	for n := 1; n < chunk; n++ {
		if n <= 50 || n%16 == 0 {
			counts = append(counts, n)
		}
	}
	return append(counts, chunk)
}

// DecodeBuckets are 1, 2, 3, 4, then steps of 4 up to 16, of 8 up to 64, of 16
// above, and batch itself.
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

// maxCount bounds the token counts of a list: no chunk is larger.
const maxCount = 1 << 16

// ParseCounts reads a list such as "1-50,64,80". An empty list is no counts.
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
