package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// loopFormats are the quantised formats, each of which has loops.
var loopFormats = slices.Concat(quantisedFormats, hfFormats)

// halfScales are the offsets of the binary16 scales in a block.
var halfScales = map[DType][]int{Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, Q4_K: {0, 2},
	Q5_K: {0, 2}, Q6_K: {208}, IQ4_XS: {0}, MXFP4: nil}

// needLoops skips a test on machines without loops for quantised formats in assembly.
func needLoops(t *testing.T) {
	t.Helper()
	if !formats[Q8_0].loops.Decode(nil, nil) {
		t.Skip("wants a processor with AVX2 and F16C")
	}
}

// The loops' values equal the decoder's bit for bit for every byte at every place of a block, blocks of one byte alone,
// and all scales. NaN equals NaN.
func TestQuantisedLoopsDecodeEveryByteAndScale(t *testing.T) {
	needLoops(t)
	r, byteStep, scaleStep := rand.New(rand.NewPCG(rand.Uint64(), 6)), 1, 1
	if testing.Short() {
		byteStep, scaleStep = 15, 17
	}
	for _, d := range loopFormats {
		block, _ := quantisedWeight(r, d, 1, formats[d].blockElements)
		compare := func() { compareLoops(t, d, block) }
		for at := range block {
			for b := 0; b < 256; b += byteStep {
				block[at] = byte(b)
				compare()
			}
			block[at] = byte(r.Uint32())
		}
		for b := range 256 {
			copy(block, bytes.Repeat([]byte{byte(b)}, len(block)))
			compare()
		}
		for _, at := range halfScales[d] {
			for scale := 0; scale < 1<<16; scale += scaleStep {
				block[at], block[at+1] = byte(scale), byte(scale>>8)
				compare()
			}
		}
	}
}

func compareLoops(t *testing.T, d DType, row []byte) {
	t.Helper()
	f := &formats[d]
	n := len(row) / f.blockBytes * f.blockElements
	got, want := make([]float32, n+1), make([]float32, n)
	got[n] = -1
	f.loops.Decode(got[:n], row)
	f.decode(want, row)
	if got[n] != -1 {
		t.Fatalf("format %d: a write beyond the end", d)
	}
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (got[i] == got[i] || w == w) {
			t.Fatalf("format %d: element %d is %v, wants %v; row %x", d, i, got[i], w, row)
		}
	}
}

// Any number of rows of any number of blocks: the loops' products equal vec.Dot over the decoder's values bit for bit,
// and are near those in float64.
func TestQuantisedLoopsDot(t *testing.T) {
	needLoops(t)
	r := rand.New(rand.NewPCG(rand.Uint64(), 7))
	for _, d := range loopFormats {
		for _, blocks := range []int{1, 2, 3, 5, 28} {
			for rows := 1; rows <= 5; rows++ {
				cols := blocks * formats[d].blockElements
				data, values := quantisedWeight(r, d, rows, cols)
				compareLoops(t, d, data)
				x, out := make([]float32, cols), make([]float32, rows+1)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				out[rows] = -1
				formats[d].loops.Dots(out[:rows], data, x)
				if out[rows] != -1 {
					t.Fatalf("format %d: a write beyond the end", d)
				}
				for i, got := range out[:rows] {
					row := values[i*cols:][:cols]
					if want, sum, size := vec.Dot(row, x), dot64(row, x), size64(row, x); got != want ||
						math.Abs(float64(got)-sum) > 1e-6*size {
						t.Errorf("format %d, row %d of %d, %d elements: %v, wants %v; %v in float64", d, i, rows, cols,
							got, want, sum)
					}
				}
			}
		}
	}
}

func dot64(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// size64 returns the sum of the products' magnitudes.
func size64(a, b []float32) (sum float64) {
	for i := range a {
		sum += math.Abs(float64(a[i]) * float64(b[i]))
	}
	return sum
}

// The loops read no byte beyond the last row: a mapped file may end there.
func TestQuantisedLoopsReadNothingBeyond(t *testing.T) {
	needLoops(t)
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, d := range loopFormats {
		f := &formats[d]
		for n := 1; n <= 5; n++ {
			rows, x := mem[page-n*f.blockBytes:page], make([]float32, f.blockElements)
			f.loops.Dots(make([]float32, n), rows, x)
			f.loops.Decode(make([]float32, n*f.blockElements), rows)
		}
	}
}

// Rows that are too short are refused, not read beyond their end.
func TestQuantisedLoopsRefuseShortRows(t *testing.T) {
	needLoops(t)
	for _, d := range loopFormats {
		f := &formats[d]
		row := make([]byte, 3*f.blockBytes)
		for name, call := range map[string]func(){
			"Decode": func() { f.loops.Decode(make([]float32, 3*f.blockElements), row[1:]) },
			"Dots":   func() { f.loops.Dots(make([]float32, 3), row[:len(row)-1], make([]float32, f.blockElements)) },
		} {
			if !panics(call) {
				t.Errorf("format %d: %s reads past the end", d, name)
			}
		}
	}
}

func panics(fn func()) (did bool) {
	defer func() { did = recover() != nil }()
	fn()
	return false
}

// Without loops in assembly a product has the same bits.
func TestQuantisedProductsWithoutLoops(t *testing.T) {
	was := formats
	defer func() { formats = was }()
	for i := range formats {
		formats[i].loops = nil
	}
	TestQuantisedProducts(t)
}

// The rows of the benchmarks are those of a chunk of Qwen2.5-0.5B's down projection.
const benchmarkColumns, benchmarkRows = 4864, 16

// BenchmarkQuantisedDots measures the dot products of one row of activations.
func BenchmarkQuantisedDots(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x, out := make([]float32, benchmarkColumns), make([]float32, benchmarkRows)
	for _, d := range loopFormats {
		rows, _ := quantisedWeight(r, d, benchmarkRows, benchmarkColumns)
		b.Run(formats[d].kernel[1:], func(b *testing.B) {
			for b.Loop() {
				formats[d].loops.Dots(out, rows, x)
			}
			reportWeights(b)
		})
	}
}

// BenchmarkQuantisedProduct measures products of all of 1, 8 and 64 rows of activations on one processor.
func BenchmarkQuantisedProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 3))
	for _, T := range []int{1, 8, 64} {
		for _, d := range slices.Concat([]DType{BF16}, loopFormats) {
			b.Run(fmt.Sprintf("%s/%d", formats[d].kernel[1:], T), func(b *testing.B) { benchmarkProduct(b, r, d, T) })
		}
	}
}

func benchmarkProduct(b *testing.B, r *rand.Rand, d DType, T int) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	data := make([]byte, d.Bytes(benchmarkRows*benchmarkColumns))
	if d.Quantised() {
		data, _ = quantisedWeight(r, d, benchmarkRows, benchmarkColumns)
	}
	w, err := LoadWeight(h, d, benchmarkRows, benchmarkColumns, data)
	if err != nil {
		b.Fatal(err)
	}
	x, y := make([]float32, T*benchmarkColumns), make([]float32, T*benchmarkRows)
	for b.Loop() {
		product(h, w, x, T, y, benchmarkRows, false)
	}
	reportWeights(b)
}

func reportWeights(b *testing.B) {
	weights := float64(b.N) * benchmarkRows * benchmarkColumns
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/weights, "ns/weight")
}
