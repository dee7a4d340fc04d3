package kernels

import "testing"

// What begin of spans.cuh gives blocks that go together is all spans for all tiles, once
// each, and those that wait for one another, the spans of a unit, are in one turn.
func TestBlocksThatGoTogetherDoEverythingOnce(t *testing.T) {
	some := 0
	for spans := 1; spans <= 132; spans++ {
		for units := 1; units <= 140; units++ {
			for tiles := 1; tiles <= 6; tiles++ {
				if tiles == 1 || together(spans, units, tiles) == 1 {
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

// Spans are all pieces of all units once, none is empty, and where units are cut into spans of
// their own each has as many.
func TestSpansAreEveryPieceOnce(t *testing.T) {
	for tiles := 1; tiles <= 1500; tiles += 1 + tiles/9 {
		for _, cols := range []int{16, 64, 80, 512, 576, 2048, 4096, 11008} {
			units, pieces, spans := splitsOf(tiles, promptTiles), splitsOf(cols, promptPiece), spansOf(tiles, cols)
			starts := cutSpans(spans, units, pieces)
			at := func(span int) int { return int(starts[span]>>16)*pieces + int(starts[span]&0xffff) }
			if at(0) != 0 || at(spans) != units*pieces {
				t.Fatalf("%d units of %d pieces in %d spans: from %d to %d", units, pieces, spans, at(0), at(spans))
			}
			for span := range spans {
				if at(span) >= at(span+1) || int(starts[span]&0xffff) >= pieces {
					t.Fatalf("%d units of %d pieces: span %d of %d is from %#x to %#x", units, pieces, span, spans, starts[span], starts[span+1])
				}
				if each := sharing(spans, units); each > 0 && (int(starts[span]>>16) != span/each || span%each == 0 && starts[span]&0xffff != 0) {
					t.Fatalf("%d units of %d pieces: span %d of %d starts at %#x", units, pieces, span, spans, starts[span])
				}
			}
		}
	}
}
