package model_test

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels/device"
)

// A decode step reads every matrix of the checkpoint except an embedding that is not the head and those of layers, and of
// the experts those that a row uses.
func TestStepBytes(t *testing.T) {
	for _, name := range families {
		c, w := checkpoint(t, name)
		h := device.NewHost(device.HostOptions{Workers: 1})
		t.Cleanup(h.Close)
		m, err := model.Load(h, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		var all, step int64
		for _, s := range c.Tensors() {
			if !s.Matrix() {
				continue
			}
			data, err := w.Tensor(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			n := int64(s.Shape[0] * data.DType.Bytes(s.Shape[1]))
			all += n
			switch {
			case s.Kind == model.ExpertTensor:
				step += n * int64(c.Experts.Used) / int64(c.Experts.Count)
			case s.Name == "model.embed_tokens_per_layer.weight":
			case c.TiedHead || s.Name != "model.embed_tokens.weight":
				step += n
			}
		}
		if m.WeightBytes() != all || m.StepBytes() != step {
			t.Errorf("%s: %d bytes, of which a step reads %d; the files say %d and %d",
				name, m.WeightBytes(), m.StepBytes(), all, step)
		}
	}
}
