package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// Pick takes the sampled rows out of a prompt's: Out[i] = X[row of sample i]. Of what comes after
// the last layer's attention nothing else is read. Rows of Out for padding samples, which come
// last, are left as they are.
type GatherRows struct {
	X     device.Buffer // float32 [T][Cols]
	Rows  Rows          // samples, int32 [N]
	Out   device.Buffer // out: float32 [N][Cols]
	Index device.Buffer // out: int32 [N]: i, or -1 for a padding sample
	Cols  int
	T, N  int
}

// Kernel is "pick".
func (GatherRows) Kernel() string { return "pick" }

// Check compares dimensions.
func (o GatherRows) Check() error {
	if o.Cols%4 != 0 {
		return fmt.Errorf("%w: rows of %d, which is no multiple of 4", device.ErrBadShape, o.Cols)
	}
	return checkBuffers(need{"x", o.X, o.T * o.Cols}, need{"samples", o.Rows.Sample, o.N}, need{"out", o.Out, o.N * o.Cols}, need{"live", o.Index, o.N})
}

// Host picks on the host.
func (o GatherRows) Host(h *device.Host) {
	x, out, live := h.Float32(o.X), h.Float32(o.Out), h.Int32(o.Index)
	for i, row := range h.Int32(o.Rows.Sample)[:o.N] {
		live[i] = -1
		if row >= 0 {
			copy(out[i*o.Cols:(i+1)*o.Cols], x[int(row)*o.Cols:])
			live[i] = int32(i)
		}
	}
}

// checkOnly refuses a list that is too short, or of a prompt's rows.
func checkRowIndex(list device.Buffer, T int, prefill bool) error {
	if list.Bytes() == 0 {
		return nil
	}
	if prefill {
		return fmt.Errorf("%w: a list of rows in a product of a prompt's", device.ErrBadShape)
	}
	return checkBuffers(need{"rows", list, T})
}

// only lends a scratch with the rows of x, of so many columns, that a list of T has, and how many.
func gatherRows(h *device.Host, list device.Buffer, x []float32, T, cols int) (rows []float32, n int) {
	rows = h.Scratch(T * cols)
	for _, row := range h.Int32(list)[:T] {
		if row < 0 {
			break
		}
		copy(rows[n*cols:(n+1)*cols], x[int(row)*cols:])
		n++
	}
	return rows, n
}
