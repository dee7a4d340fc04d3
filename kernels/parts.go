package kernels

// How a prompt's products divide their work among a GPU's blocks of threads. The order
// of a prompt's sums follows from it, so it depends on a weight's shape alone.
const (
	promptTiles = 8 // row tiles of a block
	promptPiece = 64
	leastPieces = 8 // of a span: with fewer, adding parts takes longer than making them; more than HANDING of spans.cuh
)

// promptSpans is how many spans there are at most: an H100's or H200's multiprocessors.
var promptSpans = 132

// spansOf is how many spans a product of so many row tiles and columns is cut into: as many
// for each unit where there is more than one for each.
func spansOf(tiles, cols int) int {
	units, pieces := splitsOf(tiles, promptTiles), splitsOf(cols, promptPiece)
	most := min(promptSpans, max(1, units*pieces/leastPieces))
	if each := most / units; each > 1 {
		return each * units
	}
	return most
}

// together is 1 where as many blocks as there are tiles of tokens can go through one span, each
// for its tile, and so through all spans in as many turns: then weights come from memory once.
// Blocks that share a unit wait for one another, so they must have it in the same turn. Else
// it is 0, and each block goes through its span for one tile after another.
func together(spans, units, tiles int) int32 {
	shares := spans > units && spans%units == 0
	if tiles == 1 || spans%tiles != 0 || shares && spans/tiles%(spans/units) != 0 {
		return 0
	}
	return 1
}

// meetingBytes are the counters by which blocks wait for each other's parts: two for each
// block and tile of tokens.
const meetingBytes = 1 << 16

// promptMost is how many tokens a block of threads has at most.
const promptMost = 208

// PartBytes is what a product over n rows of cols columns takes for the parts of a
// prompt's sums that one block of threads leaves to another; outputs are the rows of each
// of its weights. It must hold zeros at first. Ops that run one after another share it.
func PartBytes(n, cols int, outputs ...int) int64 {
	tiles := 0
	for _, rows := range outputs {
		tiles += splitsOf(rows, tileRows)
	}
	return partBytes(n, tiles, cols)
}

func partBytes(n, tiles, cols int) int64 {
	tokens, blocks := splitsOf(n, promptMost)*promptMost, spansOf(tiles, cols)
	return meetingBytes + int64(blocks)*promptTiles*tileRows*int64(tokens)*4
}
