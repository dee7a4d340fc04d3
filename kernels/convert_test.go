package kernels

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// A converted weight has the rows of its source, on a host with and without a guard and on a device that packs, over
// shapes of one part and of several.
func TestConvert(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	for _, c := range []struct {
		dtype      DType
		rows, cols int
	}{{BF16, 1, 16}, {BF16, 48, 64}, {BF16, 5000, 512}, {F8, 40, 256}, {F8, 9000, 512}, {G4_32, 20, 96},
		{G4_128, 15000, 640}} {
		row := int(c.dtype.Bytes(int64(c.cols)))
		data := make([]byte, row*c.rows)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		source := func(dst []byte, first int) error { copy(dst, data[row*first:]); return nil }
		for name, l := range map[string]*Loader{"host": NewLoader(h), "guard": NewLoader(device.NewGuard(h)),
			"packer": newPacker(h, 2, 3)} {
			w, err := l.Convert(c.dtype, c.rows, c.cols, source)
			want, failed := l.Weight(c.dtype, c.rows, c.cols, data)
			if err = errors.Join(err, failed, l.Close()); err != nil {
				t.Fatal(err)
			}
			if w.Layout != want.Layout || !bytes.Equal(h.Bytes(w.Data), h.Bytes(want.Data)) {
				t.Errorf("%s: a weight [%d][%d] of format %d differs from its rows", name, c.rows, c.cols, c.dtype)
			}
		}
	}
}

// An error of the source comes back, also from a later part, and the memory is freed. A row that is not whole blocks
// is refused.
func TestConvertFails(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	wrong := errors.New("wrong")
	for _, bad := range []int{0, 3000} {
		l := NewLoader(h)
		_, err := l.Convert(BF16, 5000, 512, func(dst []byte, first int) error {
			if first <= bad && bad < first+len(dst)/1024 {
				return wrong
			}
			return nil
		})
		if !errors.Is(err, wrong) || h.Live().Buffers != 0 {
			t.Errorf("%v, %+v are allocated", err, h.Live())
		}
	}
	l := newPacker(h, 2, 3)
	w, err := l.Convert(BF16, 64, 64, func([]byte, int) error { return wrong })
	if err = errors.Join(err, l.Close()); !w.Data.IsZero() {
		err = errors.Join(err, h.Free(w.Data))
	}
	if !errors.Is(err, wrong) || h.Live().Buffers != 0 {
		t.Errorf("packer: %v, %+v are allocated", err, h.Live())
	}
	never := func([]byte, int) error { panic("called") }
	for _, shape := range [][]int{{0, 128}, {4, 0}, {4, 64}, {4, 129}} {
		if _, err := NewLoader(h).Convert(F8, shape[0], shape[1], never); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v: %v, wants ErrBadShape", shape, err)
		}
	}
}

// A host fills each row once.
func TestConvertFillsOnce(t *testing.T) {
	dst := make([]byte, 3000*1000)
	if err := fill(dst, 1000, func(dst []byte, first int) error {
		for i := range dst {
			dst[i] += byte(1 + (first+i/1000)%7)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(dst); i += 1000 {
		if want := bytes.Repeat([]byte{byte(1 + i/1000%7)}, 1000); !slices.Equal(dst[i:i+1000], want) {
			t.Fatalf("row %d is filled with %d…, wants %d", i/1000, dst[i], want[0])
		}
	}
}

// A product over a weight in another order is that over the rows whose elements are in that order, bit for bit.
func TestOrder(t *testing.T) {
	const rows, cols, T = 5, 256, 3
	r, h := rand.New(rand.NewPCG(rand.Uint64(), 24)), device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	data, _ := quantisedWeight(r, G4_32, rows, cols)
	l := NewLoader(h)
	w, err := l.Weight(G4_32, rows, cols, data)
	if err != nil {
		t.Fatal(err)
	}
	order := make([]int32, cols)
	for j, i := range r.Perm(cols) {
		order[j] = int32(i)
	}
	ordered, err := l.Order(w, order)
	if err != nil {
		t.Fatal(err)
	}
	x, inOrder := make([]float32, T*cols), make([]float32, T*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for i := range x {
		inOrder[i] = x[i/cols*cols+int(order[i%cols])]
	}
	got, want := make([]float32, T*rows), make([]float32, T*rows)
	product(h, ordered, x, T, got, rows, false)
	product(h, w, inOrder, T, want, rows, false)
	if !slices.Equal(got, want) || ordered.check("w", rows, cols) != nil {
		t.Errorf("%v, wants %v", got, want)
	}
	ordered.Order = ordered.Order.Slice(0, 4*cols-4)
	if err := ordered.check("w", rows, cols); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("a short order: %v", err)
	}
}

// Only a permutation is an order, and only a host has weights in an order.
func TestOrderRefuses(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	w := Weight{Rows: 1, Cols: 3}
	for _, order := range [][]int32{{}, {0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 2}} {
		if _, err := NewLoader(h).Order(w, order); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v: %v", order, err)
		}
	}
	if _, err := newPacker(h, 1, 1).Order(w, []int32{2, 0, 1}); !errors.Is(err, device.ErrBadShape) ||
		h.Live().Buffers != 0 {
		t.Errorf("packer: %v", err)
	}
}
