package kernels

import "testing"

// An even number of token tiles covers all rows, with at most wholeTokens each, and only the last one is empty.
func TestWholeTilesCoverAllRows(t *testing.T) {
	for _, outputTiles := range []int{1, 24, 32, 96, 172} {
		for n := 1; n <= 4000; n += 1 + n/50 {
			tiles, tokens := wholeTiles(n, outputTiles, 132)
			if tiles%2 != 0 || tokens%8 != 0 || tokens > wholeTokens || tiles*tokens < n || n <= (tiles-2)*tokens {
				t.Errorf("%d rows, %d output tiles: %d tiles of %d", n, outputTiles, tiles, tokens)
			}
		}
	}
}

// More and smaller tiles are taken where they fill the last round: four pairs of 128 rows rather than three of 176.
func TestWholeTilesFillRounds(t *testing.T) {
	for _, c := range []struct{ n, outputTiles, tiles, tokens int }{
		{1024, 32, 8, 128}, {1024, 172, 6, 176}, {1536, 32, 8, 192}, {1536, 96, 8, 192}, {768, 32, 4, 192}} {
		if tiles, tokens := wholeTiles(c.n, c.outputTiles, 132); tiles != c.tiles || tokens != c.tokens {
			t.Errorf("%d rows, %d output tiles: %d tiles of %d, wants %d of %d", c.n, c.outputTiles, tiles, tokens, c.tiles, c.tokens)
		}
	}
}

// Beyond two token tiles of stream-K whole output tiles are taken, but for the gates of large models, and of many rows
// always: by what the products of 7B, 8B and 1B took.
func TestWholeTilesSuit(t *testing.T) {
	for _, c := range []struct {
		n, outputs, cols int
		suit             bool
	}{{10, 4096, 4096, false}, {416, 3 * 4096, 4096, false}, {417, 3 * 4096, 4096, true}, {512, 4096, 4096, true},
		{600, 4096, 11008, true}, {512, 2 * 11008, 4096, false}, {639, 2 * 11008, 4096, false}, {640, 2 * 11008, 4096, true},
		{600, 6144, 4096, true}, {600, 2 * 14336, 4096, false}, {600, 3072, 2048, true}, {600, 2 * 8192, 2048, true}} {
		if got := sliceShapeOf(c.outputs/tileRows, c.cols, true).wholeSuits(c.n); got != c.suit {
			t.Errorf("%d rows of %d columns to %d outputs: %t", c.n, c.cols, c.outputs, got)
		}
	}
}
