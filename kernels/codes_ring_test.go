package kernels

import "testing"

// Rings of large bricks have an even number of stages, and all have at least those of a round, whose bricks a warp
// holds at once. They fit into shared memory, and two blocks of few rows into that of an SM.
func TestBrickRings(t *testing.T) {
	check := func(d DType, stages, least, shared, most int) {
		t.Helper()
		if large := bricks[d].bytes() > ringLarge; large && stages%2 != 0 || stages < least || shared > most {
			t.Errorf("format %d: %d stages, at least %d, in %d bytes of %d", d, stages, least, shared, most)
		}
	}
	for i := range bricks {
		d := DType(i)
		if bricks[i].columns == 0 {
			continue
		}
		for room := 30 << 10; room < blockShared; room += 1 << 10 {
			stages, stage := d.ringStages(room)
			check(d, stages, 0, stages*stage, room)
		}
		_, stage := d.ringStages(0)
		for _, tokenTiles := range []int{2, 4} {
			stages, shared := manyRing(d, tokenTiles)
			check(d, stages, manyTiles*codesParts*bricks[i].bytes()/stage, shared, blockShared-manyStatic)
		}
		for _, cols := range []int{64, 2048, 4096, 8192, 16384} {
			for rows := 1; rows <= codesTokens; rows++ {
				if stages, shared, blocks := fewRing(d, rows, cols); stages > 0 {
					check(d, stages, 4, shared, []int{blockShared, halfShared}[blocks-1]-ringStatic)
				}
			}
		}
	}
	if _, _, blocks := fewRing(Q4_0, 1, 4096); blocks != 2 {
		t.Errorf("one row over Q4_0: %d blocks on an SM", blocks)
	}
	if stages, _, _ := fewRing(Q4_K, 1, 4096); stages != 0 {
		t.Errorf("one row over Q4_K: a ring of %d stages", stages)
	}
}

// Attention of one row of a few KV heads has SMs of its own where that takes QKV no longer.
func TestSMsThatAProductLeaves(t *testing.T) {
	for _, test := range []struct {
		name                    string
		units, perBlock, leaves int
		want                    int // of 132
	}{
		{"Qwen3-30B-A3B", 320, 2, 4, 128},
		{"Llama-3.1-8B", 384, 2, 8, 124},
		{"Llama-2-7B, as many KV heads as heads", 768, 2, 32, 132},
		{"three rounds exactly", 3 * 2 * 128, 2, 4, 128},
		{"one unit more", 3*2*128 + 1, 2, 4, 132},
		{"more rows than SMs", 320, 2, 256, 132},
		{"nothing follows", 320, 2, 0, 132},
	} {
		if got := smsOf(test.units, test.perBlock, 132, test.leaves); got != test.want {
			t.Errorf("%s: %d SMs, want %d", test.name, got, test.want)
		}
	}
}
