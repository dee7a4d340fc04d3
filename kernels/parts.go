package kernels

// How a prompt's products divide their work among a GPU's blocks of threads. The order
// of a prompt's sums follows from it, so it depends on a weight's shape alone.
const (
	promptTiles = 8 // row tiles of a block
	promptPiece = 64
	leastPieces = 8 // of a span: with fewer, adding parts takes longer than making them
	handing     = 5 // pieces that a block could multiply while it hands over a unit; fewer than leastPieces, so that no span is empty
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

// sharing is how many spans each of so many units has, where they are cut into spans of their
// own, whose blocks each hand over a share; or else 0.
func sharing(spans, units int) int {
	if spans > units && spans%units == 0 {
		return spans / units
	}
	return 0
}

// together is how many blocks go through one span, each for its tile of tokens: as many as
// there are tiles, where so all spans are gone through in as many turns. Then weights come from
// memory once. Blocks that share a unit wait for one another, so they must have it in the same
// turn. Else it is 1, and each block goes through its span for one tile after another.
func together(spans, units, tiles int) int {
	if each := max(1, sharing(spans, units)); spans%tiles != 0 || spans/tiles%each != 0 {
		return 1
	}
	return tiles
}

// cutSpans is where each span starts, and where the last one ends: unit<<16 | piece. A unit counts
// as some pieces more than it has, what handing it over takes. Not so where units have more
// than one span each: a block that hands over waits for those in the middle, which do not.
func cutSpans(spans, units, pieces int) (starts [spanStarts]uint32) {
	each := pieces
	if spans < units {
		each += handing
	}
	for span := range spans + 1 {
		at := units * each * span / spans
		unit, piece := at/each, at%each
		if piece >= pieces {
			unit, piece = unit+1, 0
		}
		starts[span] = uint32(unit)<<16 | uint32(piece)
	}
	return starts
}

// spanStarts is how many starts a kernel takes, as spans.cuh has them.
const spanStarts = 136

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
