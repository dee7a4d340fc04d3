// Package kernels holds the fused ops of a forward pass. Each op is a plain struct of buffer
// handles and integers. Its method Check compares dimensions, Host is its reference in Go, and
// CUDA (build tag cuda) launches its kernels. Other devices launch and capture the same struct.
//
// Shapes are written [rows][columns], row-major. T is the number of token rows
// in a step, N the number of rows that are sampled. The residual stream and
// all activations are float32.
package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Class is the launch class of an op. Ops of a decode pass are of the decode class. Those of a
// prefill pass are of the prefill class, except that the ops after the last attention, which see
// only sampled rows, are of the decode class. On a GPU the two classes add in different orders, so
// their results may differ in rounding. Within a class a row's bits depend on its own inputs
// alone, not on the other rows of the step.
type Class uint8

// The launch classes.
const (
	Decode  Class = iota // each row is the newest token of its sequence
	Prefill              // rows are tokens of prompts
)

// String is "decode" or "prefill".
func (c Class) String() string {
	if c == Prefill {
		return "prefill"
	}
	return "decode"
}

// Generated is how many of the rows of an op of the prefill class are generated rows: a mixed pass has those of running
// sequences first, padding included, then the tokens of prompts. Each row has the bits that it has in a pass of its own
// class. The host has one order for both classes.
type Generated int

// check refuses generated rows in another class, and more of them than rows.
func (g Generated) check(class Class, T int) error {
	if g != 0 && (class != Prefill || g < 0 || int(g) >= T) {
		return fmt.Errorf("%w: %d generated rows of %d in a %v pass", device.ErrBadShape, g, T, class)
	}
	return nil
}

// Workspace is device memory that the kernels of a product need on some GPUs. Either
// buffer may be none; the host uses neither. Ops that run one after another may share it.
type Workspace struct {
	// Rounded is [RoundedBytes] bytes: the input rows rounded to the weights' type. Without
	// it each block rounds the rows again.
	Rounded device.Buffer
	// Partials is [PartialsBytes] bytes: sums that blocks leave for one another, and arrival counters, of the
	// prefill class and of many generated rows. It must hold zeros at first, and kernels leave zeros in the first
	// [ClearedBytes].
	Partials device.Buffer
}

// Handover passes rounded rows from one op to the next, on GPUs that round activations: in a prefill pass, of many rows
// in the decode class, and of 2 to 8 rows of that class over quantised weights. Otherwise a product rounds its input
// rows in a launch of their own, or itself.
// The zero value hands over nothing.
type Handover struct {
	// InputIsRounded: the fused epilogue of the op before left this op's input rows in
	// Workspace.Rounded.
	InputIsRounded bool
	// Rounded is Workspace.Rounded of the next product: the fused epilogue writes the
	// results there. GateUp, prefill's Attend, and that before few rows over quantised weights then do not write Out. Or
	// none.
	Rounded device.Buffer
	Norm    device.Buffer // float32 [columns]: the norm that the next product applies to its input; or none
	// Ranks is how many ranks share the rows: this op leaves the columns of its rank, an equal part of all, where whole
	// rows have them, and the exchange after it gives them to the others. 0: the op has all columns.
	Ranks int
	// DType is that of the next product's rows, or its quantised format ([Class.HeadsHandoverType]). Only Attend reads
	// it, as a product assumes its own type.
	DType DType
	// Next are weights that products after this op read first, or none: while its last results are on their way and
	// nothing else is read, a GPU may bring the beginning of them to its cache.
	Next [3]device.Buffer
}

// HandoverType returns the type in which products of a class over all of the weights take and leave handed-over rows, or
// 0 if they cannot. Of quantised weights only stream-K can. Products of the decode class over quantised weights hand
// rows over in a form of their own, see HandsOver.
func (c Class) HandoverType(weights ...Weight) DType {
	if c == Prefill && streamsCodes(weights) {
		return F16
	}
	t := formats[weights[0].DType].packed
	for _, w := range weights {
		if w.DType.Quantised() || formats[w.DType].packed != t {
			return 0
		}
	}
	return t
}

// HandsOver reports whether a product of a class over some weights can hand its results over to one over others.
func (c Class) HandsOver(from, to []Weight) bool {
	if c == Decode && allQuantised(from) && allQuantised(to) {
		return true
	}
	t := c.HandoverType(to...)
	return t != 0 && t == c.HandoverType(from...)
}

// RoundedBytes returns the size of [Workspace].Rounded for a product over n rows of cols
// columns: the rows in 16 bits, padded to multiples of 8 rows and 128 columns, each row's
// sums of squares, from which the norm is computed, and its sums over groups of 32 and of 16 columns, which
// a generated row's products over quantised weights need.
func RoundedBytes(n, cols int) int64 {
	tokens, padded := (int64(n)+7)&^7, int64(paddedColumns(cols))
	return tokens*padded*2 + 4*tokens*(int64(cols)/128+1) + 3*4*tokens*padded/codesGroup
}

// Activations of products over quantised weights are rounded in chunks of columns, to which rows are padded, and
// summed in groups of columns for minimums (kernels/gemm/codes.cuh).
const (
	codesChunk = 128
	codesGroup = 32
)

// paddedColumns returns the columns of a rounded row.
func paddedColumns(cols int) int { return splitsOf(cols, codesChunk) * codesChunk }

// need is a buffer and the fewest 4-byte elements it must have.
type need struct {
	name string
	buf  device.Buffer
	n    int
}

// checkOptional is checkBuffers for buffers that may be none.
func checkOptional(needs ...need) error {
	for _, b := range needs {
		if !b.buf.IsZero() {
			if err := checkBuffers(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkBuffers(needs ...need) error {
	for _, b := range needs {
		if b.n <= 0 || b.buf.Bytes() < 4*int64(b.n) {
			return fmt.Errorf("%w: %s has %d bytes, wants %d elements of 4", device.ErrBadShape, b.name,
				b.buf.Bytes(), b.n)
		}
	}
	return nil
}
