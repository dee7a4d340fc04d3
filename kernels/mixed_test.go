package kernels

import (
	"testing"

	"reel.internal/reel/kernels/device"
)

// A block of every kernel of mixed passes fits into an SM's shared memory, and its rows are whole groups of eight.
func TestMixedKernelsFit(t *testing.T) {
	for _, k := range mixedKernels {
		if n := k.shared(); n > 227<<10 || k.generated%8 != 0 || k.prompts%8 != 0 || mixedKernelOf(k.generated) == nil {
			t.Errorf("%+v: %d bytes", k, n)
		}
	}
	if k := mixedKernelOf(17); k != nil {
		t.Errorf("%+v for 17 generated rows", k)
	}
}

// Sequences get the smallest kernel that has a row for each, and none if there are more.
func TestMixedRows(t *testing.T) {
	for n := 1; n <= 40; n++ {
		generated, prompts := MixedRows(n)
		switch {
		case n <= 32 && (generated < n || generated-n >= 16 || prompts < 1):
			t.Errorf("%d sequences: %d generated rows and %d of prompts", n, generated, prompts)
		case n > 32 && (generated != 0 || prompts != 0):
			t.Errorf("%d sequences: %d generated rows and %d of prompts, but there is no kernel", n, generated, prompts)
		}
	}
}

// The workspaces of a step memory of LeastMixed rows hold what the kernels of any product leave in them. One of fewer rows
// may not.
func TestWorkspacesHoldMixedPasses(t *testing.T) {
	short := false
	for rowTiles := 1; rowTiles <= 1500; rowTiles++ {
		for _, cols := range []int{1024, 2048, 4096, 11008, 14336} {
			s := sliceShapeOf(rowTiles, cols, true)
			if !s.mixes() {
				continue
			}
			for _, k := range mixedKernels {
				if want, has := s.mixedBytes(&k), PartialsBytes(LeastMixed, cols, rowTiles*tileRows); has < want {
					t.Fatalf("%d row tiles of %d columns, %+v: %d bytes, wants %d", rowTiles, cols, k, has, want)
				}
				short = short || PartialsBytes(LeastMixed-1, cols, rowTiles*tileRows) < s.mixedBytes(&k)
			}
		}
	}
	if !short {
		t.Error("fewer rows than LeastMixed suffice")
	}
}

// Attention of a mixed pass is that of its generated rows, and that of the others from the first one on, which goes where
// the whole pass has them.
func TestAttendPartsOfMixedRows(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	buffer := func(words int) device.Buffer {
		b, err := h.Alloc(int64(4 * words))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const rows, width = 21, 8
	op := Attend{Q: buffer(rows * width), Out: buffer(rows * width), Rows: Rows{Slot: buffer(rows), Position: buffer(rows)},
		T: rows, Heads: 2, KV: KV{HeadDim: 4}, Class: Prefill, Generated: 16, AfterQKV: true}
	generated, prompts := op.generatedRows(), op.promptRows()
	if generated.T != 16 || generated.Class != Decode || generated.Generated != 0 || !generated.AfterQKV ||
		generated.within != (rowsOfMixed{first: 0, rows: rows}) || generated.Q != op.Q || generated.Out != op.Out {
		t.Errorf("generated rows: %+v", generated)
	}
	if beside := generated.besidePrompts(); beside.AfterQKV || beside.within != (rowsOfMixed{rows: rows, beside: true}) {
		t.Errorf("generated rows beside those of prompts: %+v", beside)
	}
	if prompts.T != 5 || prompts.Class != Prefill || prompts.Generated != 0 || prompts.AfterQKV ||
		prompts.within != (rowsOfMixed{first: 16, rows: rows}) {
		t.Errorf("rows of prompts: %+v", prompts)
	}
	for _, c := range []struct {
		all, part device.Buffer
		each      int
	}{{op.Q, prompts.Q, width}, {op.Out, prompts.Out, width}, {op.Rows.Slot, prompts.Rows.Slot, 1},
		{op.Rows.Position, prompts.Rows.Position, 1}} {
		if c.part != c.all.Slice(int64(4*16*c.each), int64(4*5*c.each)) {
			t.Errorf("a part of %d bytes of %d", c.part.Bytes(), c.all.Bytes())
		}
	}
}
