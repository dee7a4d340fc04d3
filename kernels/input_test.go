package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// Weights of several formats, in an order of columns or not, have the products together that each has alone.
func TestProductsOfSeveralFormats(t *testing.T) {
	const rows, cols = 9, 64
	g := newRig(t, 1, 8)
	var weights []Weight
	for _, d := range []DType{BF16, BF16, F32, G4_32, F16, BF16} {
		data := make([]byte, d.Bytes(rows*cols))
		if d == G4_32 {
			data, _ = quantisedWeight(g.r, d, rows, cols)
		} else {
			randomise(g.r, d, data)
		}
		w, err := LoadWeight(g.h, d, rows, cols, data)
		g.must(err)
		weights = append(weights, w)
	}
	order := make([]int32, cols)
	for j, i := range g.r.Perm(cols) {
		order[j] = int32(i)
	}
	for _, i := range []int{1, 3} {
		var err error
		weights[i], err = NewLoader(g.h).Order(weights[i], order)
		g.must(err)
	}
	for _, T := range []int{0, 1, 3} {
		_, x := g.random(T*cols + 1)
		got, want := make([]float32, T*rows*len(weights)), make([]float32, T*rows*len(weights))
		var targets []target
		for i, w := range weights {
			targets = append(targets, target{w, sums{got[i*T*rows:], rows, false}})
			product(g.h, w, x, T, want[i*T*rows:], rows, false)
		}
		products(g.h, x, T, targets...)
		if !slices.Equal(got, want) {
			t.Errorf("%d rows: %v, wants %v", T, got, want)
		}
	}
}

// randomise sets data to random numbers of the format d.
func randomise(r *rand.Rand, d DType, data []byte) {
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for i := int(d.Bytes(1)) - 1; i < len(data); i += int(d.Bytes(1)) {
		data[i] = data[i]&0x81 | 0x3a // of a middling size
	}
}

// An element is the same in products of one row or several, whichever rows of the weight are computed beside it, stored
// or added; so it is with rows that are no whole blocks.
func TestProductsInBF16DoNotDependOnNeighbours(t *testing.T) {
	const rows, T = 37, 11
	for _, cols := range []int{1, 31, 32, 40, 96, 896} {
		g := newRig(t, 1, 8)
		w, _ := g.weight(BF16, rows, cols)
		_, x := g.random(T * cols)
		_, before := g.random(T * rows)
		all, alone := slices.Clone(before), make([]float32, T*rows)
		product(g.h, w, x, T, all, rows, true)
		for t := range T {
			for r := range rows {
				product(g.h, w.rowsOf(r, 1), x[t*cols:], 1, alone[t*rows+r:], rows, false)
			}
		}
		for i, v := range alone {
			if want := before[i] + v; all[i] != want {
				t.Fatalf("%d columns, row %d of %d: %v, alone %v", cols, i%rows, i/rows, all[i], want)
			}
		}
		in, done := inputs(g.h, x, T, w)
		for begin := 0; begin < rows; {
			end := min(rows, begin+1+g.r.IntN(9))
			rowsProduct(g.h, w, begin, end, in[0], sums{alone, rows, false})
			begin = end
		}
		done()
		for i, v := range alone {
			if want := before[i] + v; all[i] != want {
				t.Fatalf("%d columns, row %d of %d: %v, in another chunk %v", cols, i%rows, i/rows, all[i], want)
			}
		}
	}
}

// BenchmarkRound measures the rounding of 64 rows of Qwen2.5-0.5B's activations.
func BenchmarkRound(b *testing.B) {
	h := device.NewHost(device.HostOptions{Workers: 1})
	defer h.Close()
	x := make([]float32, 64*benchmarkColumns)
	for b.Loop() {
		scratch, _ := roundRows(h, x, 64, benchmarkColumns)
		h.Return(scratch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/element")
}
