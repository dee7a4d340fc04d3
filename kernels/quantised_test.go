package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// quantisedFormats is the order of testdata/quantised.bin.
var quantisedFormats = []DType{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_XS, MXFP4}

// hfFormats is the order of testdata/quantised_hf.bin.
var hfFormats = []DType{F8, G4_32, G4_64, G4_128}

// The decoders equal Python's package gguf bit for bit, over random blocks with extreme scales. NaN equals NaN.
func TestQuantisedEqualsReference(t *testing.T) {
	compareReference(t, "testdata/quantised.bin", quantisedFormats, func(f format) int { // quantised.py writes it
		if f.blockElements > 32 {
			return 2048 / f.blockBytes
		}
		return 640 / f.blockBytes
	})
}

// The same of the formats that Hugging Face checkpoints become, beside numpy.
func TestQuantisedHFEqualsReference(t *testing.T) {
	compareReference(t, "testdata/quantised_hf.bin", hfFormats, func(format) int { return 40 }) // quantised_hf.py writes it
}

// compareReference decodes count blocks of each format, which a file holds before their values.
func compareReference(t *testing.T, name string, list []DType, count func(format) int) {
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		f := formats[d]
		n := count(f)
		row, y := file[:n*f.blockBytes], make([]float32, n*f.blockElements)
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
		if d == F8 {
			for i := at + 4; i < at+f.blockBytes; i++ {
				data[i] &^= 8 // no NaN
			}
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
	for _, d := range slices.Concat(quantisedFormats, hfFormats) {
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

// BenchmarkDecode measures the decoders, in GB of weights a second as float32.
func BenchmarkDecode(b *testing.B) {
	for _, d := range slices.Concat([]DType{BF16, F16}, quantisedFormats, hfFormats) {
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
