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
