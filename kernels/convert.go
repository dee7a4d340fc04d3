package kernels

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// RowSource writes rows of a weight to dst, as many as it holds, from row first on. A loader calls it on several
// goroutines.
type RowSource func(dst []byte, first int) error

// convertedPart is the number of bytes that a goroutine converts at a time, at least.
const convertedPart = 1 << 20

// Convert loads a [rows][cols] matrix that does not lie in memory as a device wants it. A host allocates memory and
// fills it before Convert returns; a GPU packs it as [Loader.Weight] does, and calls source until Close. Errors: those
// of source and of Weight.
func (l *Loader) Convert(t DType, rows, cols int, source RowSource) (Weight, error) {
	if err := wholeBlocks(t, rows, cols); err != nil {
		return Weight{}, err
	}
	if l.packer != nil {
		return l.packed(t, rows, cols, source)
	}
	w := Weight{DType: t, Rows: rows, Cols: cols}
	var memory *device.Mapped
	var err error
	if w.Data, memory, err = l.dev.Pinned(w.bytes()); err != nil {
		return Weight{}, err
	}
	if err := fill(memory.Bytes(), int(t.Bytes(int64(cols))), source); err != nil {
		return Weight{}, device.GiveBack(func() error { return err }, func() error { return l.dev.Free(w.Data) })
	}
	return w, nil
}

// wholeBlocks refuses rows that are not whole blocks.
func wholeBlocks(t DType, rows, cols int) error {
	if rows < 1 || cols < 1 || cols%formats[t].blockElements != 0 {
		return fmt.Errorf("%w: weight [%d][%d] is not whole blocks of %d", device.ErrBadShape, rows, cols,
			formats[t].blockElements)
	}
	return nil
}

// CheckOrder returns [device.ErrBadShape] if weights are in activation order on a GPU, which has no kernels for them.
func CheckOrder(ordered bool) error {
	if ordered {
		return gpuLimit("a GPU has no kernels for weights in activation order")
	}
	return nil
}

// Order gives w the order of its columns, a permutation of 0 to w.Cols-1. Errors: [device.ErrBadShape], and the
// device's.
func (l *Loader) Order(w Weight, order []int32) (Weight, error) {
	seen, ok := make([]bool, w.Cols), len(order) == w.Cols && w.Cols > 0
	for _, i := range order {
		if ok = ok && i >= 0 && int(i) < w.Cols && !seen[i]; !ok {
			break
		}
		seen[i] = true
	}
	if !ok {
		return w, fmt.Errorf("%w: the order of %d columns is no permutation", device.ErrBadShape, w.Cols)
	}
	if err := CheckOrder(l.packer != nil); err != nil {
		return w, err
	}
	var err error
	w.Order, err = l.dev.Load(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(order))), 4*len(order)))
	return w, err
}

// fill writes all rows, each of row bytes, on all processors.
func fill(dst []byte, row int, source RowSource) error {
	rows := max(1, convertedPart/row/tileRows) * tileRows // of a part
	parts := (len(dst)/row + rows - 1) / rows
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, parts)
	for range min(parts, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < parts; i = int(next.Add(1)) - 1 {
				errs[i] = source(dst[i*rows*row:min(len(dst), (i+1)*rows*row)], i*rows)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
