package model_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// wider is a checkpoint whose residual stream has more elements than the one it reads. The new
// ones are always 0, so the results are the same.
type wider struct {
	model.Tensors
	from, to int
}

// Tensor returns a tensor with zeros for the new elements. A norm divides by the root of the mean
// of more elements, so its weights are smaller.
func (w wider) Tensor(name string) (weights.Tensor, error) {
	t, err := w.Tensors.Tensor(name)
	if err != nil || t.DType != weights.BF16 {
		return t, fmt.Errorf("%s is of type %v: %w", name, t.DType, err)
	}
	if strings.Contains(name, "norm") {
		values := make([]byte, 4*w.to)
		for i := range w.from {
			v := math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
			v *= float32(math.Sqrt(float64(w.from) / float64(w.to)))
			binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(v))
		}
		t.DType, t.Shape, t.Data = weights.F32, []int{w.to}, values
		return t, nil
	}
	rows, cols := t.Shape[0], t.Shape[1]
	if strings.Contains(name, "o_proj") || strings.Contains(name, "down_proj") {
		zeros := make([]byte, 2*cols*(w.to-w.from))
		t.Shape, t.Data = []int{w.to, cols}, slices.Concat(t.Data, zeros)
		return t, nil
	}
	data := make([]byte, 2*rows*w.to)
	for row := range rows {
		copy(data[2*row*w.to:], t.Data[2*row*cols:2*(row+1)*cols])
	}
	t.Shape, t.Data = []int{rows, w.to}, data
	return t, nil
}

// A hidden_size of any number is served on the host. Wider models with the same results are
// compared with transformers.
func TestAnyHiddenSizeOnTheHost(t *testing.T) {
	for _, width := range []int{65, 66, 67, 70} {
		c, w := checkpoint(t, "llama-2")
		wide := wider{w, c.Hidden, width}
		c.RMSNormEps *= float32(c.Hidden) / float32(width)
		c.Hidden = width
		h := device.NewHost(device.HostOptions{})
		t.Cleanup(h.Close)
		m, err := model.Load(h, c, widened(wide), func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		rounded, err := model.Load(h, c, wide, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range loadGolden(t, filepath.Join("testdata", "llama-2"), 5, c.Vocab) {
			equalsGolden(t, h, m, g, 7)
			r := newRunner(t, h, rounded, 7, kernels.F32)
			if r.prompt(g.Tokens, 7); !(relativeError(r.logits(), g.logits) < 2e-2) {
				t.Errorf("width %d, %d tokens: logits differ by %.1e relative, want under 2e-2", width, len(g.Tokens),
					relativeError(r.logits(), g.logits))
			}
			r.free()
		}
	}
}
