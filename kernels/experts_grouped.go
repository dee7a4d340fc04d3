package kernels

import "slices"

// Experts of a prompt on Hopper (gemm/grouped.cuh): each place, a row and one of its experts, has a slot. The slots of
// an expert follow each other from a multiple of 8 on, and products multiply token tiles of them. A sum is ascending
// over all columns, whatever the other rows are.

// groupedFormats are the quantised formats of these kernels (experts_prefill.cu).
var groupedFormats = []DType{Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, F8, G4_128, MXFP4}

// groupedType returns the type of the rounded rows that a stack of experts takes there, or 0 if it has no kernels.
func groupedType(w Weight) DType {
	switch {
	case w.Layout == Fragments && !w.DType.Quantised():
		return formats[w.DType].packed
	case w.Layout == Codes && slices.Contains(groupedFormats, w.DType):
		return F16
	}
	return 0
}

// ExpertsHandOver reports whether the gates of experts can leave their results rounded for the down projection:
// whether both have kernels for a prompt that take one type.
func ExpertsHandOver(gate, up, down Weight) bool {
	t := groupedType(gate)
	return t != 0 && t == groupedType(up) && t == groupedType(down)
}

// groupedVariant is a kernel of the grouped GEMM: the most slots of a token tile, and the blocks of an SM.
type groupedVariant struct{ tokens, blocks int }

var groupedSmall = groupedVariant{56, 2} // two blocks unpack codes faster than one

// expertSlots returns the most slots of T rows: of each expert the last eight may be partly used.
func expertSlots(T, used, experts int) int {
	places := T * used
	return (places + 7*min(experts, places) + 7) &^ 7
}

// expertTokenTiles returns the most token tiles of T rows.
func expertTokenTiles(T, used, experts, tokens int) int {
	places := T * used
	return places/tokens + min(experts, places)
}

// placesBytes returns the bytes of what the kernels leave in [Chosen].Segments: a count, token tiles of four int32,
// the place of each slot, and the slot of each place.
func placesBytes(T, used, experts int) int64 {
	tiles := expertTokenTiles(T, used, experts, groupedSmall.tokens)
	return 4 * int64(segmentsAt+4*tiles+expertSlots(T, used, experts)+T*used)
}

// ExpertsRoundedBytes returns the size of [ExpertWorkspace].Rounded for rows of cols columns, and of Gated for experts
// of width cols: rounded rows of slots, then float32 [slots] scales.
func ExpertsRoundedBytes(T, used, experts, cols int) int64 {
	return int64(expertSlots(T, used, experts)) * int64(2*cols+4)
}
