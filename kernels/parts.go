package kernels

import "sync"

// How a prompt's products divide their work among a GPU's blocks of threads. The order
// of a prompt's sums follows from it, so it depends on a weight's shape alone.
const (
	promptTiles = 8 // row tiles of a block
	promptPiece = 64
	leastPieces = 8 // of a span, on average: with fewer, adding parts takes longer than making them
)

// What a block does beside multiplying, in pieces that it could multiply meanwhile (NOTES.md).
const (
	handing = 7 // a unit's results over to the op
	leaving = 3 // a part's sums to another block
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

// pairs is how many of `side` blocks that go through a span together begin as a cluster: two are
// then neighbors, and what one of them reads of the weights the other finds near. (More would not
// fit everywhere: of clusters of four an H200 has room for 30.)
func pairs(side int) int { return 2 - side%2 }

// evenly cuts n tokens into tiles of at most `most`, as many each but for the last, which may have
// fewer: whole eights, as the tensor cores take them. Blocks wait for one another, so the longest
// tile is what all take.
func evenly(n, most int) (tiles, tokens int) {
	tokens = splitsOf(splitsOf(n, splitsOf(n, most)), 8) * 8
	return splitsOf(n, tokens), tokens
}

// spanStart is where a span starts: a unit, and which of its pieces.
type spanStart struct{ unit, piece int }

// cutShape is what a product's spans depend on: how many there are, and units of so many pieces.
type cutShape struct{ spans, units, pieces int }

// cuts are the spans of shapes that were cut: each capture asks for them again.
var cuts sync.Map

// cut is where each span starts, and where the last one ends.
func (s cutShape) cut() []spanStart {
	if known, ok := cuts.Load(s); ok {
		return known.([]spanStart)
	}
	starts := s.balanced()
	cuts.Store(s, starts)
	return starts
}

// balanced has all blocks done at about the same time. Spans that have units of their own are
// as long as one another, and so are all where being done together would take fewer of them.
func (s cutShape) balanced() []spanStart {
	if s.spans > 1 && sharing(s.spans, s.units) == 0 {
		least, most := s.units*s.pieces/s.spans, s.units*(s.pieces+handing)+leaving
		for least < most {
			if middle := (least + most) / 2; s.within(middle) != nil {
				most = middle
			} else {
				least = middle + 1
			}
		}
		if starts := s.within(least); len(starts) == s.spans+1 {
			return starts
		}
	}
	return s.even()
}

// even cuts spans of as many pieces each.
func (s cutShape) even() []spanStart {
	starts := make([]spanStart, s.spans+1)
	for span := range starts {
		at := s.units * s.pieces * span / s.spans
		starts[span] = spanStart{at / s.pieces, at % s.pieces}
	}
	return starts
}

// within cuts spans that take a block no longer than `most` pieces, as long as can be, or is nil
// where these are too many. A block that has no unit's end leaves its sums to one that does, as
// early as that one begins to hand over.
func (s cutShape) within(most int) []spanStart {
	at := spanStart{}
	starts := []spanStart{at}
	for at.unit < s.units {
		if len(starts) > s.spans {
			return nil
		}
		took, ends := 0, false
		for at.unit < s.units && took+s.pieces-at.piece+handing <= most {
			took += s.pieces - at.piece + handing
			at, ends = spanStart{at.unit + 1, 0}, true
		}
		if at.unit < s.units {
			more := most - took - leaving
			if !ends {
				more -= handing
			}
			if more = min(more, s.pieces-at.piece-1); more > leaving {
				at.piece += more
			} else if !ends {
				return nil
			}
		}
		starts = append(starts, at)
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
func PartialsBytes(n, cols int, outputs ...int) int64 {
	tiles := 0
	for _, rows := range outputs {
		tiles += splitsOf(rows, tileRows)
	}
	return partialsBytes(n, tiles, cols)
}

func partialsBytes(n, tiles, cols int) int64 {
	tokens, blocks := splitsOf(n, promptMost)*promptMost, spansOf(tiles, cols)
	return meetingBytes + int64(blocks)*promptTiles*tileRows*int64(tokens)*4
}
