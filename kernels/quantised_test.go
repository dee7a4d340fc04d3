package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// quantisedFormats is the order of testdata/quantised.bin.
var quantisedFormats = []DType{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_XS, MXFP4}

// The decoders equal Python's package gguf bit for bit, over random blocks with extreme scales. NaN equals NaN.
func TestQuantisedEqualsReference(t *testing.T) {
	file, err := os.ReadFile("testdata/quantised.bin") // quantised.py writes it
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range quantisedFormats {
		f := formats[d]
		count := 640 / f.blockBytes
		if f.blockElements > 32 {
			count = 2048 / f.blockBytes
		}
		row, y := file[:count*f.blockBytes], make([]float32, count*f.blockElements)
		file = file[len(row):]
		f.decode(y, row)
		special := 0
		for i, got := range y {
			want := math.Float32frombits(binary.LittleEndian.Uint32(file[4*i:]))
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("format %d: element %d of block %d is %v, wants %v", d, i%f.blockElements,
					i/f.blockElements, got, want)
			}
			if math.IsInf(float64(got), 0) || got != got || got != 0 && math.Abs(float64(got)) < 1e-6 {
				special++
			}
		}
		if special == 0 {
			t.Errorf("format %d: no infinite, NaN or tiny value", d)
		}
		file = file[4*len(y):]
	}
	if len(file) != 0 {
		t.Errorf("%d bytes are left", len(file))
	}
}

// quantisedWeight returns random blocks with finite scales, and their values.
func quantisedWeight(r *rand.Rand, d DType, rows, cols int) (data []byte, values []float32) {
	f := formats[d]
	data = make([]byte, d.Bytes(int64(rows*cols)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for at := 0; at < len(data); at += f.blockBytes {
		for _, scale := range []int{0, 2, f.blockBytes - 2} { // between them all that a format has
			data[at+scale+1] = data[at+scale+1]&0x83 | 0x20
		}
		if d == MXFP4 {
			data[at] = 120 + data[at]%16
		}
	}
	values = make([]float32, rows*cols)
	f.decode(values, data)
	return data, values
}

// A product over quantised weights and a row of a quantised embedding equal those over the decoded values, bit for
// bit, for one row of activations and for several.
func TestQuantisedProducts(t *testing.T) {
	const rows, cols, T = 5, 512, 6
	r, h := rand.New(rand.NewPCG(rand.Uint64(), 24)), device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	for _, d := range quantisedFormats {
		data, values := quantisedWeight(r, d, rows, cols)
		w, err := LoadWeight(h, d, rows, cols, data)
		if err != nil {
			t.Fatal(err)
		}
		floats := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
		plain, err := LoadWeight(h, F32, rows, cols, floats)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, T*cols)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		got, want := make([]float32, T*rows), make([]float32, T*rows)
		product(h, w, x, T, got, rows, false)
		product(h, plain, x, T, want, rows, false)
		if !slices.Equal(got, want) {
			t.Errorf("format %d: %v, wants %v", d, got, want)
		}
		one := make([]float32, rows)
		product(h, w, x[3*cols:4*cols], 1, one, rows, false)
		if !slices.Equal(one, got[3*rows:4*rows]) {
			t.Errorf("format %d: one row %v, wants %v", d, one, got[3*rows:4*rows])
		}
		embedded := make([]float32, cols)
		formats[d].decode(embedded, w.row(h, 2))
		if !slices.Equal(embedded, values[2*cols:3*cols]) {
			t.Errorf("format %d: a row of the embedding differs", d)
		}
	}
}

// A device with packed weights refuses quantised ones.
func TestQuantisedIsNotPacked(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	l := newPacker(h, 1, 1)
	h.Faults().FailAt(1, false) // an allocation would be another error
	if _, err := l.Weight(Q8_0, 16, 32, make([]byte, 16*34)); !errors.Is(err, device.ErrBadShape) ||
		!strings.Contains(err.Error(), "quantised") {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkDecode measures the decoders, in GB of weights a second as float32.
func BenchmarkDecode(b *testing.B) {
	for _, d := range append([]DType{BF16, F16}, quantisedFormats...) {
		y, row := make([]float32, 4096), make([]byte, d.Bytes(4096))
		for i := range row {
			row[i] = byte(i * 7)
		}
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			b.SetBytes(4 * 4096)
			for b.Loop() {
				formats[d].decode(y, row)
			}
		})
	}
}
