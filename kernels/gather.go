package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// GatherRows copies the sampled rows of a prefill step: Out[i] = X[row of sample i]. After the
// last layer's attention nothing reads the other rows. Rows of Out for padding samples, which
// come last, are not written.
type GatherRows struct {
	X     device.Buffer // float32 [T][Cols]
	Rows  Rows          // samples, int32 [N]
	Out   device.Buffer // out: float32 [N][Cols]
	Index device.Buffer // out: int32 [N], a row index for ops over Out: i, or -1 for a padding sample
	Cols  int
	T, N  int
}

// Kernel returns "gather", the name of the op in reports.
func (GatherRows) Kernel() string { return "gather" }

// Check compares dimensions.
func (o GatherRows) Check() error {
	return checkBuffers(need{"x", o.X, o.T * o.Cols}, need{"samples", o.Rows.Sample, o.N},
		need{"out", o.Out, o.N * o.Cols},
		need{"index", o.Index, o.N})
}

// Host copies on the host.
func (o GatherRows) Host(h *device.Host) {
	x, out, index := h.Float32(o.X), h.Float32(o.Out), h.Int32(o.Index)
	for i, row := range h.Int32(o.Rows.Sample)[:o.N] {
		index[i] = -1
		if row >= 0 {
			copy(out[i*o.Cols:(i+1)*o.Cols], x[int(row)*o.Cols:])
			index[i] = int32(i)
		}
	}
}

// checkRowIndex refuses a row index with fewer than T entries, and one in the prefill class,
// whose kernels read consecutive rows.
func checkRowIndex(index device.Buffer, T int, class Class) error {
	if index.Bytes() == 0 {
		return nil
	}
	if class == Prefill {
		return fmt.Errorf("%w: a row index in a product of the prefill class", device.ErrBadShape)
	}
	return checkBuffers(need{"row index", index, T})
}

// gatherRows returns scratch with the rows of x, of cols columns each, that the first T entries
// of index name, and their number. The caller returns the scratch.
func gatherRows(h *device.Host, index device.Buffer, x []float32, T, cols int) (rows []float32, n int) {
	rows = h.Scratch(T * cols)
	for _, row := range h.Int32(index)[:T] {
		if row < 0 {
			break
		}
		copy(rows[n*cols:(n+1)*cols], x[int(row)*cols:])
		n++
	}
	return rows, n
}
