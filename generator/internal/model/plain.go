package model

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"reel.internal/reel/generator/internal/weights"
)

// plainValues are the values of a tensor in a type of floats. Those of quantised blocks are computed at the first use,
// and dropped after the last, so that a loader may have many of them ahead.
type plainValues struct {
	dtype   weights.DType
	tensor  weights.Tensor
	compute sync.Once
	data    []byte
	err     error
	left    atomic.Int64 // rows of weights that will still be made of them
}

// plain returns the values of t, of which weights with that many rows in all are made.
func plain(t weights.Tensor, rows int) *plainValues {
	v := &plainValues{dtype: t.DType, tensor: t}
	if t.Conversion != nil || t.DType.Quantised() {
		v.dtype = weights.F32
	}
	v.left.Store(int64(rows))
	return v
}

// use calls do with the values, for so many rows. Any goroutine may call it.
func (v *plainValues) use(rows int, do func(data []byte)) error {
	v.compute.Do(func() { v.data, v.err = v.decoded() })
	if v.err != nil {
		return v.err
	}
	do(v.data)
	if v.left.Add(int64(-rows)) == 0 {
		v.data = nil
	}
	return nil
}

// decoded returns the values.
func (v *plainValues) decoded() ([]byte, error) {
	t := v.tensor
	if t.DType == v.dtype && t.Conversion == nil {
		return t.Data, nil
	}
	data := t.Data
	if t.Conversion != nil {
		data = make([]byte, t.Shape[0]*t.DType.Bytes(t.Shape[1]))
		if err := t.Conversion.Rows(data, 0); err != nil {
			return nil, err
		}
	}
	values := make([]float32, t.Shape[0]*t.Shape[1])
	dtypes[t.DType].Decode(values, data)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values)), nil
}
