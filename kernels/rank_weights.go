package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// WeightEach is [Loader.Weight] with other rows for each rank of the device: data has rows rows for each.
func (l *Loader) WeightEach(t DType, rows, cols int, data [][]byte) (Weight, error) {
	if len(data) != l.ranks {
		return Weight{}, fmt.Errorf("%w: rows for %d of %d ranks", device.ErrBadShape, len(data), l.ranks)
	}
	var sources []RowSource
	for _, d := range data {
		if want := int64(rows) * t.Bytes(int64(cols)); int64(len(d)) != want {
			return Weight{}, fmt.Errorf("%w: weight [%d][%d] has %d bytes, wants %d", device.ErrBadShape, rows, cols,
				len(d), want)
		}
		sources = append(sources, rowsOf(t, cols, d))
	}
	if l.packer != nil {
		return l.packed(t, rows, cols, sources...)
	}
	b, err := l.dev.Capabilities().Ranks.LoadEach(data)
	return Weight{Data: b, DType: t, Rows: rows, Cols: cols}, err
}

// ConvertEach is [Loader.Convert] with a source for each rank of the device.
func (l *Loader) ConvertEach(t DType, rows, cols int, sources []RowSource) (Weight, error) {
	if err := wholeBlocks(t, rows, cols); err != nil {
		return Weight{}, err
	}
	if len(sources) != l.ranks {
		return Weight{}, fmt.Errorf("%w: rows for %d of %d ranks", device.ErrBadShape, len(sources), l.ranks)
	}
	if l.packer != nil {
		return l.packed(t, rows, cols, sources...)
	}
	w := Weight{DType: t, Rows: rows, Cols: cols}
	var each []*device.Mapped
	var err error
	if w.Data, each, err = l.dev.Capabilities().Ranks.PinnedEach(w.bytes()); err != nil {
		return Weight{}, err
	}
	for i, source := range sources {
		if err := fill(each[i].Bytes(), int(t.Bytes(int64(cols))), source); err != nil {
			return Weight{}, device.GiveBack(func() error { return err }, func() error { return l.dev.Free(w.Data) })
		}
	}
	return w, nil
}

// LoadVectors loads a vector for each rank of the device, all of one length.
func LoadVectors(dev device.Device, each [][]float32) (device.Buffer, error) {
	data := make([][]byte, len(each))
	for i, v := range each {
		if len(v) == 0 || len(v) != len(each[0]) {
			return device.Buffer{}, fmt.Errorf("%w: vectors of %d and %d elements", device.ErrBadShape, len(each[0]),
				len(v))
		}
		data[i] = bytesOf(v)
	}
	return dev.Capabilities().Ranks.LoadEach(data)
}
