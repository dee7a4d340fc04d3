package kernels

import (
	"errors"
	"math"
	"testing"

	"reel.internal/reel/kernels/device"
)

// The elements of some lanes, by hand from the definition of mma.m16n8k16, with four
// consecutive columns for each lane.
func TestPackOrdersElementsByLane(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, cols = 17, 32
	src, _ := g.h.Alloc(2 * rows * cols)
	for i := range g.h.Uint16(src) {
		g.h.Uint16(src)[i] = uint16(i + 1)
	}
	dst, _ := g.h.Alloc(2 * 32 * cols)
	g.launch(Pack{Src: src, Dst: dst, DType: BF16, Rows: rows, Cols: cols})
	at := func(row, col int) uint16 { return uint16(row*cols + col + 1) }
	for _, c := range []struct {
		tile, step, lane int
		want             [8]uint16
	}{
		{0, 0, 0, [8]uint16{at(0, 0), at(0, 1), at(8, 0), at(8, 1), at(0, 2), at(0, 3), at(8, 2), at(8, 3)}},
		{0, 1, 7, [8]uint16{at(1, 28), at(1, 29), at(9, 28), at(9, 29), at(1, 30), at(1, 31), at(9, 30), at(9, 31)}},
		{1, 0, 1, [8]uint16{at(16, 4), at(16, 5), 0, 0, at(16, 6), at(16, 7), 0, 0}},
		{1, 1, 31, [8]uint16{}},
	} {
		begin := ((c.tile*2+c.step)*32 + c.lane) * 8
		if got := [8]uint16(g.h.Uint16(dst)[begin:]); got != c.want {
			t.Errorf("tile %d, step %d, lane %d: %v, wants %v", c.tile, c.step, c.lane, got, c.want)
		}
	}
}

func TestPackRefusesShapes(t *testing.T) {
	g := newRig(t, 1, 8)
	b, _ := g.h.Alloc(2 * 16 * 32)
	for _, op := range []Pack{
		{Src: b.Slice(0, 2*16*24), Dst: b, DType: BF16, Rows: 16, Cols: 24},
		{Src: b.Slice(0, 2*16*16), Dst: b, DType: BF16, Rows: 16, Cols: 16},
		{Src: b.Slice(0, 10), Dst: b, DType: BF16, Rows: 16, Cols: 32},
	} {
		if err := g.stream.Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("[%d][%d]: %v, wants ErrBadShape", op.Rows, op.Cols, err)
		}
	}
}

func TestFloat16(t *testing.T) {
	for bits, want := range map[uint16]float32{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x3555: 0.333251953125, 0x7bff: 65504, 0x0400: 0x1p-14, 0x0001: 0x1p-24,
		0x83ff: -1023 * 0x1p-24,
		0x7c00: float32(math.Inf(1)), 0xfc00: float32(math.Inf(-1)),
	} {
		if got := Float16(bits); got != want {
			t.Errorf("%#04x is %v, wants %v", bits, got, want)
		}
	}
	if got := Float16(0x7e00); got == got {
		t.Errorf("a NaN became %v", got)
	}
}

func TestFloat16Weights(t *testing.T) {
	g := newRig(t, 1, 8)
	w, err := LoadWeight(g.h, F16, 2, 3, []byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0xbc, 0, 0x38, 0, 0}) // 1 2 3; -1 0.5 0
	g.must(err)
	in, v := g.random(3)
	copy(v, []float32{1, 10, 100})
	x, _ := g.h.Alloc(8)
	g.launch(Projection{W: w, In: in, X: x, T: 1})
	if got := g.h.Float32(x); got[0] != 321 || got[1] != 4 {
		t.Errorf("product %v, wants 321 and 4", got)
	}
	rows, _ := AllocRows(g.h, g.layout)
	g.h.Int32(rows.Token)[0] = 1
	e, _ := g.h.Alloc(12)
	g.launch(Embed{Table: w, Rows: rows, X: e, T: 1})
	if got := g.h.Float32(e); got[0] != -1 || got[1] != 0.5 || got[2] != 0 {
		t.Errorf("embedding %v, wants -1, 0.5, 0", got)
	}
}

func TestCheckPacked(t *testing.T) {
	for _, c := range [][3]int{{96, 3072, 8192}, {256, 2560, 10240}, {512, 2816, 2112}} { // Phi-3 Mini, Gemma 3 4B, Gemma 4 26B-A4B
		if err := CheckPacked(c[0], c[1], c[2]); err != nil {
			t.Error(err)
		}
	}
	for _, c := range [][3]int{{80, 64, 64}, {544, 64, 64}, {64, 72, 64}, {64, 64, 100}} {
		if err := CheckPacked(c[0], c[1], c[2]); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v: %v, wants ErrBadShape", c, err)
		}
	}
}

func TestCheckLatent(t *testing.T) {
	for _, c := range [][6]int{{16, 128, 64, 128, 512, 0}, {20, 192, 64, 256, 512, 768}} { // DeepSeek-V2-Lite, GLM-4.7-Flash
		if err := CheckLatent(c[0], c[1], c[2], c[3], c[4], c[5]); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range [][6]int{{16, 120, 64, 128, 512, 0}, {16, 128, 64, 120, 512, 0}, {16, 128, 64, 128, 528, 0},
		{16, 128, 64, 128, 504, 0}, {16, 128, 56, 128, 512, 0}, {16, 128, 96, 128, 512, 0}, {16, 128, 64, 128, 512, 80},
		{1, 16, 32, 16, 32, 0}} {
		if err := CheckLatent(c[0], c[1], c[2], c[3], c[4], c[5]); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v: %v, wants ErrBadShape", c, err)
		}
	}
}
