package convert

import (
	"fmt"
	"math"
	"os"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// worker converts parts. Its buffers are as large as the largest of them.
type worker struct {
	plan   *plan
	file   *os.File
	x, y   []float32 // elements, and the values of their blocks
	blocks []byte
	rows   []byte // of a tensor that is made of several
}

// sums are over the elements of a part.
type sums struct {
	square float64 // of the elements
	error  float64 // of the squares of what the blocks' values differ by
}

// convert writes the blocks of a part at their place.
func (w *worker) convert(p part) (s sums, err error) {
	t := &w.plan.tensors[p.tensor]
	n := p.rows * columns(t.Shape)
	w.x, w.y = resized(w.x, n), resized(w.y, n)
	w.blocks = resized(w.blocks, t.to.Bytes(n))
	if err := weights.Guard(func() error { return w.read(t, p) }); err != nil {
		return s, fmt.Errorf("%s: %w", t.File, err)
	}
	encode(w.blocks, t.to, w.x)
	formats[t.to].values.Decode(w.y, w.blocks)
	for i, v := range w.x {
		s.square += float64(v) * float64(v)
		d := float64(v) - float64(w.y[i])
		s.error += d * d
	}
	switch {
	case !(s.square <= math.MaxFloat64):
		return s, fmt.Errorf("weights: %s: tensor %.80q: an element of the rows from %d on is %w", t.File, t.Name, p.first,
			weights.ErrNotFinite)
	case !(s.error <= math.MaxFloat64) && t.to == weights.F16:
		return s, fmt.Errorf("%w: %s: %s: its %d columns are no whole blocks, so it would be F16, and an element of the rows "+
			"from %d on is more than 65504: serve the checkpoint as it is", ErrRange, t.File, t.Name, columns(t.Shape), p.first)
	case !(s.error <= math.MaxFloat64):
		return s, fmt.Errorf("%w: %s: %s: a scale of %v in the rows from %d on is more than 65504: convert to a format "+
			"with a smaller one, or use F16 or BF16", ErrRange, t.File, t.Name, t.to, p.first)
	}
	_, err = w.file.WriteAt(w.blocks, t.at+int64(t.to.Bytes(p.first*columns(t.Shape))))
	return s, err
}

// read sets x to the rows of a part, in the file's order.
func (w *worker) read(t *planned, p part) error {
	cols := columns(t.Shape)
	if t.Conversion != nil {
		return w.readMade(t, p)
	}
	for r := range p.rows {
		from := ggufmake.Row(w.plan.config, t.Name, p.first+r) * cols
		for i := range cols {
			w.x[r*cols+i] = t.Float(from + i)
		}
	}
	if w.plan.config.NormsFromOne && t.kind == model.NormTensor { // GGUF has the weights whole
		for i := range w.x {
			w.x[i]++
		}
	}
	return nil
}

// readMade sets x to the rows of a part of a tensor that is made of several, such as experts.
func (w *worker) readMade(t *planned, p part) error {
	w.rows = resized(w.rows, p.rows*t.DType.Bytes(columns(t.Shape)))
	if err := t.Conversion.Rows(w.rows, p.first); err != nil {
		return err
	}
	made := weights.Tensor{DType: t.DType, Data: w.rows}
	for i := range w.x {
		w.x[i] = made.Float(i)
	}
	return nil
}

// resized returns s with n elements of any value.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
