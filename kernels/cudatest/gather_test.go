//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// randomIndex returns an index of random rows below rows, then padding entries.
func randomIndex(b *both, sampled, padding, rows int) []int32 {
	list := make([]int32, sampled+padding)
	for i := range list {
		if list[i] = -1; i < sampled {
			list[i] = b.r.Int32N(int32(rows))
		}
	}
	return list
}

func TestCUDAGatherRows(t *testing.T) {
	b := newBoth(t)
	const rows = 70
	for i, sampled := range []int{0, 1, 8, 64} {
		cols := []int{16, 576, 4096}[i%3]
		list := randomIndex(b, sampled, i, rows)
		if len(list) == 0 {
			list = []int32{-1}
		}
		x, sample := put(b, b.normal(rows*cols, 1)), put(b, list)
		out, marks := b.poisoned(len(list)*cols), b.poisoned(len(list))
		b.run(func(on int) device.Op {
			return kernels.GatherRows{X: x[on], Rows: kernels.Rows{Sample: sample[on]}, Out: out[on],
				Index: marks[on], Cols: cols, T: rows, N: len(list)}
		})
		b.same("rows", out)
		b.same("row index", marks)
	}
}

// Indexed rows have the same bits as consecutive ones, in any group of rows. Outputs of padding
// entries are not written.
func TestCUDARowIndex(t *testing.T) {
	b := newBoth(t)
	defer func(n int) { tune.MaxPersistentBlocks = n }(tune.MaxPersistentBlocks)
	for i, of := range [][2]int{{0, 1}, {1, 2}, {1, 0}, {2, 3}, {7, 1}, {8, 0}, {8, 5}, {9, 0}, {16, 0}, {17, 4},
		{33, 2}, {64, 0}, {1, 63}} {
		tune.MaxPersistentBlocks = []int{math.MaxInt32, 4, 1}[i/2%3] // there are 6 units
		b.rowIndexProducts([]kernels.DType{kernels.BF16, kernels.F16}[i%2], of[0], of[1], []int{64, 1040, 4096}[i%3])
	}
}

// rowIndexProducts compares products with an index of sampled rows and some padding.
func (b *both) rowIndexProducts(dtype kernels.DType, sampled, padding, in int) {
	b.t.Helper()
	const rows, width = 80, 96
	list := randomIndex(b, sampled, padding, rows)
	n := len(list)
	w, up := b.matrix(dtype, width, in), b.matrix(dtype, width, in)
	values := b.normal(rows*in, 3)
	var gathered []float32
	for _, row := range list[:sampled] {
		gathered = append(gathered, values[int(row)*in:(int(row)+1)*in]...)
	}
	x, index, norm := put(b, values), put(b, list), put(b, b.powers(in))
	residual := b.normal(n*width, 1)
	sevens := slices.Repeat([]float32{7}, n*width)
	for _, c := range []struct {
		name string
		out  []float32
		op   func(on int, out, index device.Buffer, x device.Buffer, rows, n int) device.Op
	}{
		{"projection", residual, func(on int, out, index, x device.Buffer, _, n int) device.Op {
			return kernels.Projection{W: w[on], In: x, X: out, RowIndex: index, T: n}
		}},
		{"gateup", sevens, func(on int, out, index, x device.Buffer, _, n int) device.Op {
			return kernels.GateUp{X: x, Norm: norm[on], Gate: w[on], Up: up[on], Out: out, RowIndex: index, T: n,
				Eps: 1e-5}
		}},
		{"head", sevens, func(on int, out, index, x device.Buffer, rows, n int) device.Op {
			samples := index
			if samples.Bytes() == 0 {
				samples = put(b, counted(n))[on]
			}
			return kernels.Head{X: x, Norm: norm[on], W: w[on], Rows: kernels.Rows{Sample: samples}, Logits: out,
				T: rows, N: n, Eps: 1e-5}
		}},
	} {
		name := fmt.Sprintf("%s, %d rows of %d, %d to %d", c.name, sampled, n, in, width)
		out := put(b, c.out)
		b.run(func(on int) device.Op { return c.op(on, out[on], index[on], x[on], rows, n) })
		b.close(name, out, 8*sums(in), 1e-5)
		got := read[uint32](b, 1, out[1])
		want := viewOf[uint32](bytesOf(slices.Clone(c.out)))
		if sampled > 0 {
			dense := b.load(1, bytesOf(slices.Clone(c.out)))
			b.onGPU(c.op(1, dense, device.Buffer{}, b.load(1, bytesOf(gathered)), sampled, sampled))
			copy(want[:sampled*width], read[uint32](b, 1, dense))
		}
		b.equal(name, got, want)
	}
}
