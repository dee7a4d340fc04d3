package model_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// float8Whole writes a matrix of float8 with one scale, as Ministral 3 has them.
func float8Whole(r *rand.Rand, m hfModel, name string, rows, cols int) func(row, col int) float32 {
	q := m.codes(r, name+".weight", weights.F8_E4M3, rows, cols)
	s := m.floats(r, name+".weight_scale_inv", 0, 0.003)
	m.floats(r, name+".activation_scale", 1, 0.1)
	return func(row, col int) float32 { return s[0] * e4m3(q[row*cols+col]) }
}

// openWrapped reads a checkpoint as the text part of one with images.
func openWrapped(t *testing.T, m hfModel) (model.Config, model.Tensors) {
	t.Helper()
	wrapped := hfModel{tensors: map[string]weights.Tensor{}}
	for name, x := range m.tensors {
		wrapped.put("language_model."+name, x.DType, x.Data, x.Shape...)
	}
	wrapped.put("vision_tower.patch_conv.weight", weights.BF16, make([]byte, 2*3*2*2), 1, 3, 2, 2)
	text := strings.NewReplacer("LlamaForCausalLM", "MistralForCausalLM", `"llama"`, `"mistral"`).Replace(
		fmt.Sprintf(hfConfig, "null"))
	quantisation, err := json.Marshal(m.quantisation)
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(fmt.Appendf(nil, `{"model_type":"mistral3","text_config":%s,"quantization_config":%s}`,
		text, quantisation), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.Open(fstest.MapFS{"model.safetensors": {Data: wrapped.file()}})
	if err != nil {
		t.Fatal(err)
	}
	c, inner, others := c.Text(w)
	tensors, err := c.Published(inner)
	if err == nil {
		err = c.CheckTensors(tensors)
	}
	if err != nil || others != 1 {
		t.Fatalf("%d tensors of images, %v", others, err)
	}
	return c, tensors
}

// The quantised text of a wrapped checkpoint gives the logits of its values, bit for bit.
func TestWrappedFloat8(t *testing.T) {
	m, plain := newHFModel(t, rand.New(rand.NewPCG(rand.Uint64(), 27)), hfFormat{`{"quant_method":"fp8",
		"activation_scheme":"static","dequantize":false,"weight_block_size":null,
		"modules_to_not_convert":["model.vision_tower","model.multi_modal_projector","lm_head"]}`, float8Whole})
	c, tensors := openWrapped(t, m)
	pc, values := openWrapped(t, plain)
	if made, _ := c.Converted(tensors); made == 0 || c.TiedHead {
		t.Errorf("%d bytes are converted; tied: %v", made, c.TiedHead)
	}
	tokens := []int32{3, 14, 15, 92, 6, 53, 58}
	got, want := run(t, c, tensors, tokens), run(t, pc, values, tokens)
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Fatalf("logits %d are %v, want %v", i, got[i][:4], want[i][:4])
		}
	}
}
