package kernels

import "testing"

// What begin of spans.cuh gives blocks that go together is all spans for all tiles, once
// each, and those that wait for one another, the spans of a unit, are in one turn.
func TestBlocksThatGoTogetherDoEverythingOnce(t *testing.T) {
	some := 0
	for spans := 1; spans <= 132; spans++ {
		for units := 1; units <= 140; units++ {
			for tiles := 1; tiles <= 6; tiles++ {
				if together(spans, units, tiles) == 0 {
					continue
				}
				some++
				turnOf := map[[2]int]int{} // of span and tile
				for block := range spans {
					for turn := range tiles {
						turnOf[[2]int{turn*(spans/tiles) + block/tiles, block % tiles}] = turn
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
	if some == 0 || together(132, 172, 2) == 0 || together(128, 32, 2) == 0 {
		t.Error("the spans of 7B go together nowhere")
	}
}
