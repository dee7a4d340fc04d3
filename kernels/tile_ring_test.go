package kernels

import "testing"

// Rings of row tiles fit into shared memory. A warp waits for a use of a stage by its parity, so the use before must be
// over when it does: it is of an earlier batch, after which all warps met, or of the same row tile, whose warps wait
// for each.
func TestTileRings(t *testing.T) {
	for i := range bricks {
		d := DType(i)
		if bricks[i].columns == 0 {
			continue
		}
		for _, cols := range []int{256, 768, 1408, 2048, 2880, 4096, 7168} {
			r := newTileRing(d, cols)
			for rows := 1; rows <= codesTokens; rows++ {
				for tiles := 1; tiles <= 2; tiles++ {
					stages, shared := expertRing(d, cols, rows, tiles)
					if stages > 0 && (shared > blockShared-expertRingStatic || stages > tileRingMost) {
						t.Errorf("format %d, %d columns, %d rows: %d stages in %d bytes", d, cols, rows, stages, shared)
					}
					checkUses(t, r, stages, tiles, expertWarps/r.parts/tiles)
				}
				if stages, shared := expertDownRing(d, cols, rows); stages > 0 {
					if shared > blockShared-downRingStatic || r.parts < codesParts {
						t.Errorf("format %d, %d columns, %d experts: %d stages in %d bytes", d, cols, rows, stages, shared)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		d           DType
		cols, tiles int
	}{{Q4_K, 2048, 2}, {Q4_K, 768, 1}, {MXFP4, 2880, 2}, {MXFP4, 2880, 1}} {
		if stages, _ := expertRing(c.d, c.cols, codesTokens, c.tiles); stages == 0 {
			t.Errorf("format %d, %d columns: no ring", c.d, c.cols)
		}
	}
}

// checkUses goes through the uses of a ring's stages in batches of units.
func checkUses(t *testing.T, r tileRing, stages, tiles, units int) {
	t.Helper()
	type use struct{ batch, tile int }
	last := map[int]use{}
	for n := 0; stages > 0 && n < 20*units*tiles*r.slices; n++ {
		unit := n / (tiles * r.slices)
		now := use{unit / units, unit%units*tiles + n%tiles}
		if before, ok := last[n%stages]; ok && before.batch == now.batch && before.tile != now.tile {
			t.Errorf("%+v, %d stages, %d row tiles, %d units: use %d of a stage follows one of the same batch", r, stages,
				tiles, units, n)
			return
		}
		last[n%stages] = now
	}
}
