package kernels

import (
	"slices"
	"testing"
)

// What begin of spans.cuh gives blocks that go together is all spans for all tiles, once
// each, and those that wait for one another, the spans of a unit, are in one turn.
func TestBlocksThatGoTogetherDoEverythingOnce(t *testing.T) {
	some := 0
	for side := 1; side <= 6; side++ { // what CUDA wants of clusters
		if n := pairs(side); side%n != 0 || side%2 == 0 && n != 2 {
			t.Errorf("%d blocks in clusters of %d", side, n)
		}
	}
	for spans := 1; spans <= 132; spans++ {
		for units := 1; units <= 140; units++ {
			for tiles := 1; tiles <= 6; tiles++ {
				if together(spans, units, tiles) == 1 {
					continue
				}
				some++
				turnOf := map[[2]int]int{} // of span and tile
				for row := range spans / tiles {
					for turn := range tiles {
						for tile := range tiles {
							turnOf[[2]int{turn*(spans/tiles) + row, tile}] = turn
						}
					}
				}
				if len(turnOf) != spans*tiles {
					t.Fatalf("%d spans, %d tiles: %d of %d done", spans, tiles, len(turnOf), spans*tiles)
				}
				for at, turn := range turnOf {
					if at[0] >= spans {
						t.Fatalf("%d spans, %d tiles: span %d", spans, tiles, at[0])
					}
					if parts := spans / units; parts > 1 && spans%units == 0 && turnOf[[2]int{at[0] / parts * parts, at[1]}] != turn {
						t.Fatalf("%d spans of %d units, %d tiles: unit %d is in several turns", spans, units, tiles, at[0]/parts)
					}
				}
			}
		}
	}
	if some == 0 || together(132, 172, 2) != 2 || together(128, 32, 2) != 2 {
		t.Error("the spans of 7B go together nowhere")
	}
}

// Tiles have every token, none is empty or longer than a block takes, there are no more of them
// than have to be, and none has eight more than its share.
func TestTilesAreEven(t *testing.T) {
	for _, most := range []int{16, 56, 104, 208} {
		for n := 1; n <= 9000; n++ {
			tiles, tokens := evenly(n, most)
			if last := n - (tiles-1)*tokens; tokens%8 != 0 || tokens > most || last < 1 || last > tokens || tiles > splitsOf(n, most) || tokens >= splitsOf(n, splitsOf(n, most))+8 {
				t.Fatalf("%d tokens, at most %d a tile: %d tiles of %d", n, most, tiles, tokens)
			}
		}
	}
	if tiles, tokens := evenly(400, 208); tiles != 2 || tokens != 200 {
		t.Errorf("400 tokens are %d tiles of %d, wants 2 of 200", tiles, tokens)
	}
}

// Spans are all pieces of all units once, none is empty, and where units are cut into spans of
// their own each has as many.
func TestSpansAreEveryPieceOnce(t *testing.T) {
	for tiles := 1; tiles <= 1500; tiles += 1 + tiles/9 {
		for _, cols := range []int{16, 64, 80, 512, 576, 2048, 4096, 11008} {
			units, pieces, spans := splitsOf(tiles, promptTiles), splitsOf(cols, promptPiece), spansOf(tiles, cols)
			starts := cutShape{spans, units, pieces}.cut()
			if len(starts) != spans+1 || spans >= spanStarts || starts[0] != (spanStart{}) || starts[spans] != (spanStart{units, 0}) {
				t.Fatalf("%d units of %d pieces in %d spans: %v", units, pieces, spans, starts)
			}
			for span := range spans {
				from, to := starts[span], starts[span+1]
				if from.unit*pieces+from.piece >= to.unit*pieces+to.piece || from.piece >= pieces {
					t.Fatalf("%d units of %d pieces: span %d of %d is from %v to %v", units, pieces, span, spans, from, to)
				}
				if each := sharing(spans, units); each > 0 && (from.unit != span/each || span%each == 0 && from.piece != 0) {
					t.Fatalf("%d units of %d pieces: span %d of %d starts at %v", units, pieces, span, spans, from)
				}
			}
		}
	}
}

// takes is how long a block of a span takes, in pieces, as NOTES.md has measured it at 7B: 7
// more for a unit that it hands over, 3 where it leaves sums, and where it ends no unit the 7
// of the block that waits for them.
func takes(starts []spanStart, pieces, span int) int {
	from, to := starts[span], starts[span+1]
	took := (to.unit-from.unit)*(pieces+7) + to.piece - from.piece
	if to.piece > 0 {
		took += 3
	}
	if to.unit == from.unit {
		took += 7
	}
	return took
}

// No block takes longer than where all spans are as long as one another, but for a piece of
// rounding; and of gate and up at 7B none takes as long.
func TestSpansEndTogether(t *testing.T) {
	dearest := func(starts []spanStart, pieces int) (most int) {
		for span := range len(starts) - 1 {
			most = max(most, takes(starts, pieces, span))
		}
		return most
	}
	for units := 1; units <= 300; units++ {
		for _, pieces := range []int{14, 32, 64, 172} {
			spans := spansOf(units*promptTiles, pieces*promptPiece)
			s := cutShape{spans, units, pieces}
			if got, even := dearest(s.cut(), pieces), dearest(s.even(), pieces); got > even+1 {
				t.Fatalf("%d units of %d pieces in %d spans: a block takes %d pieces, of even spans %d", units, pieces, spans, got, even)
			}
		}
	}
	gateUp := cutShape{132, 172, 64}
	if got, even := dearest(gateUp.cut(), 64), dearest(gateUp.even(), 64); got != 96 || even <= got {
		t.Errorf("gate and up: %d pieces, even %d", got, even)
	}
	if qkv := (cutShape{132, 96, 64}); !slices.Equal(qkv.cut(), qkv.even()) {
		t.Error("q, k, v have other spans than the even ones, which would take fewer")
	}
}
