//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// A block that processes several units gives the same bits as one block per unit, also if blocks
// have different numbers of units. Rows have no K block for most warps, one, or several.
func TestCUDAPersistentBlocks(t *testing.T) {
	b := newBoth(t)
	defer func(n int) { tune.MaxPersistentBlocks = n }(tune.MaxPersistentBlocks)
	for i, in := range []int{16, 1040, 1024, 80, 4096, 11008, 4096, 1040} {
		dtype, width, rows := []kernels.DType{kernels.BF16, kernels.F16}[i%2], 16*7-i, []int{1, 8, 1, 5}[i%4]
		w, up := b.matrix(dtype, width, in)[1], b.matrix(dtype, width, in)[1]
		x, norm, start := put(b, b.normal(rows*in, 3))[1], put(b, b.normal(in, 1))[1], b.normal(rows*width, 1)
		sample := put(b, counted(rows))[1]
		var want [][]uint32
		for _, tune.MaxPersistentBlocks = range []int{math.MaxInt32, 6, 4, 3, 1} {
			sum, gated, logits := b.load(1, bytesOf(start)), b.poisoned(rows * width)[1], b.poisoned(rows * width)[1]
			b.onGPU(kernels.Projection{W: w, In: x, X: sum, T: rows},
				kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Out: gated, T: rows, Eps: 1e-5},
				kernels.Head{X: x, Norm: norm, W: w, Rows: kernels.Rows{Sample: sample}, Logits: logits, T: rows,
					N: rows, Eps: 1e-5})
			want = b.sameAsOneUnit(fmt.Sprintf("%d rows of %d, type %d", rows, in, dtype), want, sum, gated, logits)
		}
	}
}

// The same for QKV: 4 heads of q and 2 each of k and v, of 3 units each with their own part of
// RoPE.
func TestCUDAPersistentBlocksOfQKV(t *testing.T) {
	b := newBoth(t)
	defer func(n int) { tune.MaxPersistentBlocks = n }(tune.MaxPersistentBlocks)
	for i, hidden := range []int{80, 2048, 1040, 4096} {
		o := b.newAttention([]kernels.DType{kernels.BF16, kernels.F16}[i%2],
			[]kernels.DType{kernels.F16, kernels.BF16}[i%2], []int{1, 8, 5, 1}[i], hidden, 4, 2, 96).op[1]
		var want [][]uint32
		for _, tune.MaxPersistentBlocks = range []int{math.MaxInt32, 23, 7, 1} {
			b.onGPU(kernels.Fill{Data: o.Out, Value: kernels.Poison},
				kernels.Fill{Data: o.KV.Data, Value: kernels.Poison}, o)
			want = b.sameAsOneUnit(fmt.Sprintf("%d columns", hidden), want, o.Out, o.KV.Data)
		}
	}
}

// One row of gate and up has persistent blocks if its units are a few more than these on 132 SMs, and the bits that it
// has beside another row.
func TestCUDAPersistentGateUpOfOneRow(t *testing.T) {
	b := newBoth(t)
	const in, width = 896, 16 * 304
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		gate, up := b.matrix(dtype, width, in)[1], b.matrix(dtype, width, in)[1]
		x, norm := put(b, b.normal(2*in, 3))[1], put(b, b.normal(in, 1))[1]
		alone, both := b.poisoned(width)[1], b.poisoned(2 * width)[1]
		op := kernels.GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: both, T: 2, Eps: 1e-5}
		b.onGPU(op)
		op.T, op.Out = 1, alone
		b.onGPU(op)
		b.equal("one row", read[uint32](b, 1, alone), read[uint32](b, 1, both)[:width])
	}
}

// sameAsOneUnit fails if the content of buffers is not want, and returns it. want is nil for the
// first run, with one block per unit.
func (b *both) sameAsOneUnit(name string, want [][]uint32, buffers ...device.Buffer) (got [][]uint32) {
	b.t.Helper()
	for i, buffer := range buffers {
		got = append(got, read[uint32](b, 1, buffer))
		if want != nil {
			b.equal(fmt.Sprintf("%s, result %d, %d blocks", name, i, tune.MaxPersistentBlocks), got[i], want[i])
		}
	}
	return got
}

// Kernels over quantised weights with a ring in shared memory give the bits of those without, also if blocks have
// different numbers of units.
func TestCUDACodesRing(t *testing.T) {
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			for j, in := range []int{256, 2304, 4096, 11008, 512, 4096} {
				rows := []int{1, 8, 2, 9, 5, 16, 3, 23, 7, 64, 4, 70, 6}[(i+5*j)%13]
				b.codesRing(f, rows, in, 16*(7+8*(i%3))-i)
			}
		})
	}
}

// ringBlocks are values of tune.MaxPersistentBlocks. With the first there is no ring.
var ringBlocks = []int{math.MaxInt32, math.MaxInt32, 3, 1}

// eachRing calls run without a ring, which is also without a workspace for rounded rows, and with rings. It compares
// the buffers that run returns.
func (b *both) eachRing(name string, rounded device.Buffer, run func(kernels.Workspace) []device.Buffer) {
	b.t.Helper()
	defer func(ring bool, n int) { tune.CodesRing, tune.MaxPersistentBlocks = ring, n }(
		tune.CodesRing, tune.MaxPersistentBlocks)
	var want [][]uint32
	for i, blocks := range ringBlocks {
		var workspace kernels.Workspace
		if tune.CodesRing, tune.MaxPersistentBlocks = i > 0, blocks; i > 0 {
			workspace.Rounded = rounded
		}
		want = b.sameAsOneUnit(name, want, run(workspace)...)
	}
}

// codesRing compares the products of rows of `in` columns.
func (b *both) codesRing(f quantised, rows, in, width int) {
	b.t.Helper()
	w, up := b.matrix(f.dtype, width, in)[1], b.matrix(f.dtype, width, in)[1]
	x, norm, start := put(b, b.normal(rows*in, 3))[1], put(b, b.normal(in, 1))[1], b.normal(rows*width, 1)
	sample := put(b, counted(rows))[1]
	b.eachRing(fmt.Sprintf("%s, %d rows of %d", f.name, rows, in), b.roundedFor(rows, in),
		func(workspace kernels.Workspace) []device.Buffer {
			sum, gated, logits := b.load(1, bytesOf(start)), b.poisoned(rows * width)[1], b.poisoned(rows * width)[1]
			b.onGPU(kernels.Projection{W: w, In: x, X: sum, Workspace: workspace, T: rows},
				kernels.GateUp{X: x, Norm: norm, Gate: w, Up: up, Out: gated, Workspace: workspace, T: rows, Eps: 1e-5},
				kernels.Head{X: x, Norm: norm, W: w, Rows: kernels.Rows{Sample: sample}, Logits: logits,
					Workspace: workspace, T: rows, N: rows, Eps: 1e-5})
			return []device.Buffer{sum, gated, logits}
		})
}

// The same for QKV.
func TestCUDACodesRingOfQKV(t *testing.T) {
	for i, f := range quantisedFormats {
		t.Run(f.name, func(t *testing.T) {
			b := newBoth(t)
			for _, rows := range []int{1 + i%8, 12 + i} {
				hidden := 256 * (1 + i)
				o := b.newAttention(f.dtype, []kernels.DType{kernels.F16, kernels.BF16}[i%2], rows, hidden, 4, 2, 96).op[1]
				b.eachRing(fmt.Sprintf("%s, %d rows of %d", f.name, rows, hidden), b.roundedFor(rows, hidden),
					func(workspace kernels.Workspace) []device.Buffer {
						o.Workspace = workspace
						b.onGPU(kernels.Fill{Data: o.Out, Value: kernels.Poison},
							kernels.Fill{Data: o.KV.Data, Value: kernels.Poison}, o)
						return []device.Buffer{o.Out, o.KV.Data}
					})
			}
		})
	}
}
