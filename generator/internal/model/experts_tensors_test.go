package model_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// held is a checkpoint in memory.
type held map[string]weights.Tensor

func (h held) Tensor(name string) (weights.Tensor, error) {
	t, ok := h[name]
	if !ok {
		return t, fmt.Errorf("%w: %s", weights.ErrMissing, name)
	}
	return t, nil
}

func (h held) Names() []string { return slices.Sorted(maps.Keys(h)) }

// put adds a tensor of random bytes.
func (h held) put(d weights.DType, name string, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	data := make([]byte, n*d.Size())
	for i := range data {
		data[i] = byte(rand.Uint32()) & 0x7f // exponents that are not all ones, and of MXFP4 up to 127
	}
	h[name] = weights.Tensor{Name: name, DType: d, Shape: shape, Data: data}
}

// sparse returns the config of a layer with experts, and all tensors but those of the experts.
func sparse(transposed bool) (model.Config, held) {
	c := model.Config{Name: "qwen3_moe", Vocab: 32, Hidden: 64, Inner: 32, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 32,
		Context: 64, RMSNormEps: 1e-5, RoPETheta: 1e4,
		Experts: &model.Experts{Count: 4, Used: 2, Inner: 32, Transposed: transposed}}
	h := held{}
	for _, s := range c.Tensors() {
		if s.Kind != model.ExpertTensor {
			h.put(weights.BF16, s.Name, s.Shape...)
		}
	}
	return c, h
}

const expertsPrefix = "model.layers.0.mlp.experts."

// rows returns all rows of a matrix, read in two parts.
func rows(t *testing.T, x weights.Tensor) []byte {
	t.Helper()
	if x.Conversion == nil {
		return x.Data
	}
	size := x.DType.Bytes(x.Shape[1])
	all := make([]byte, x.Shape[0]*size)
	cut := rand.IntN(x.Shape[0])
	if err := errors.Join(x.Conversion.Rows(all[:cut*size], 0), x.Conversion.Rows(all[cut*size:], cut)); err != nil {
		t.Fatal(err)
	}
	return all
}

// A stack has the rows of each expert, one after another, whatever form the file has.
func TestStacksOfExperts(t *testing.T) {
	const experts, inner, hidden = 4, 32, 64
	for form, fill := range map[string]func(h held) func(part, e, row, col int) []byte{
		"one by one": func(h held) func(part, e, row, col int) []byte {
			for e := range experts {
				h.put(weights.BF16, fmt.Sprintf("%s%d.gate_proj.weight", expertsPrefix, e), inner, hidden)
				h.put(weights.BF16, fmt.Sprintf("%s%d.up_proj.weight", expertsPrefix, e), inner, hidden)
				h.put(weights.BF16, fmt.Sprintf("%s%d.down_proj.weight", expertsPrefix, e), hidden, inner)
			}
			return func(part, e, row, col int) []byte {
				name := fmt.Sprintf("%s%d.%s.weight", expertsPrefix, e,
					[]string{"gate_proj", "up_proj", "down_proj"}[part])
				return element(h[name], row, col)
			}
		},
		"stacked": func(h held) func(part, e, row, col int) []byte {
			h.put(weights.BF16, expertsPrefix+"gate_up_proj", experts, 2*inner, hidden)
			h.put(weights.BF16, expertsPrefix+"down_proj", experts, hidden, inner)
			return func(part, e, row, col int) []byte {
				if part == 2 {
					return element(h[expertsPrefix+"down_proj"], e, row, col)
				}
				return element(h[expertsPrefix+"gate_up_proj"], e, part*inner+row, col)
			}
		},
		"transposed": func(h held) func(part, e, row, col int) []byte {
			h.put(weights.BF16, expertsPrefix+"gate_up_proj", experts, hidden, 2*inner)
			h.put(weights.BF16, expertsPrefix+"down_proj", experts, inner, hidden)
			return func(part, e, row, col int) []byte {
				if part == 2 {
					return element(h[expertsPrefix+"down_proj"], e, col, row)
				}
				return element(h[expertsPrefix+"gate_up_proj"], e, col, 2*row+part)
			}
		},
	} {
		c, h := sparse(form == "transposed")
		at := fill(h)
		tensors, err := c.Published(h)
		if err == nil {
			err = c.CheckTensors(tensors)
		}
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		for part, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			x, err := tensors.Tensor(expertsPrefix + name + ".weight")
			if err != nil {
				t.Fatal(err)
			}
			data, cols := rows(t, x), x.Shape[1]
			for i := range len(data) / 2 {
				row, col := i/cols, i%cols
				each := x.Shape[0] / experts
				if want := at(part, row/each, row%each, col); !slices.Equal(data[2*i:2*i+2], want) {
					t.Fatalf("%s: %s, row %d, column %d: %v, wants %v", form, name, row, col, data[2*i:2*i+2], want)
				}
			}
		}
	}
}

// element returns the bytes of an element of a bfloat16 tensor.
func element(t weights.Tensor, index ...int) []byte {
	at := 0
	for d, i := range index {
		at = at*t.Shape[d] + i
	}
	return t.Data[2*at : 2*at+2]
}

// Files whose experts do not fit the config are refused by a tensor's name before anything is loaded.
func TestExpertsThatDoNotFit(t *testing.T) {
	oneByOne := func(h held) {
		for e := range 4 {
			h.put(weights.BF16, fmt.Sprintf("%s%d.gate_proj.weight", expertsPrefix, e), 32, 64)
			h.put(weights.BF16, fmt.Sprintf("%s%d.up_proj.weight", expertsPrefix, e), 32, 64)
			h.put(weights.BF16, fmt.Sprintf("%s%d.down_proj.weight", expertsPrefix, e), 64, 32)
		}
	}
	for name, test := range map[string]struct {
		plant func(h held)
		names string
	}{
		"an expert is missing": {func(h held) { oneByOne(h); delete(h, expertsPrefix+"3.up_proj.weight") },
			"3.up_proj"},
		"an expert too many": {func(h held) {
			oneByOne(h)
			h.put(weights.BF16, expertsPrefix+"4.up_proj.weight", 32, 64)
		}, "4.up_proj"},
		"an expert of a width": {func(h held) {
			oneByOne(h)
			h.put(weights.BF16, expertsPrefix+"2.down_proj.weight", 64, 48)
		}, "2.down_proj"},
		"an expert of a type": {func(h held) {
			oneByOne(h)
			h.put(weights.F16, expertsPrefix+"2.gate_proj.weight", 32, 64)
		}, "2.gate_proj"},
		"codes": {func(h held) {
			oneByOne(h)
			h.put(weights.U8, expertsPrefix+"0.gate_proj.weight", 32, 64)
		}, "gate_proj"},
		"a stack of other shape": {func(h held) { h.put(weights.BF16, expertsPrefix+"gate_up_proj", 4, 64, 32) },
			"gate_up_proj"},
		"a stack that is turned": {func(h held) { h.put(weights.BF16, expertsPrefix+"gate_up_proj", 4, 32, 128) },
			"gate_up_proj"},
		"a stack of other count": {func(h held) { h.put(weights.BF16, expertsPrefix+"gate_up_proj", 3, 64, 64) },
			"gate_up_proj"},
		"blocks of another shape": {func(h held) {
			h.put(weights.U8, expertsPrefix+"gate_up_proj_blocks", 4, 64, 3, 16)
			h.put(weights.U8, expertsPrefix+"gate_up_proj_scales", 4, 64, 2)
		}, "gate_up_proj_blocks"},
		"no scales": {func(h held) { h.put(weights.U8, expertsPrefix+"gate_up_proj_blocks", 4, 64, 2, 16) },
			"gate_up_proj_scales"},
		"a router of a shape": {func(h held) {
			oneByOne(h)
			h.put(weights.BF16, "model.layers.0.mlp.gate.weight", 5, 64)
		}, "mlp.gate.weight"},
	} {
		c, h := sparse(false)
		test.plant(h)
		tensors, err := c.Published(h)
		if err == nil {
			err = c.CheckTensors(tensors)
		}
		fits := !errors.Is(err, model.ErrTensor) && !errors.Is(err, weights.ErrMissing)
		if fits || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: %v, wants a refusal that names %s", name, err, test.names)
		}
	}
}

// Experts one by one that are quantised, as in FP8 checkpoints, are a stack with the rows of each.
func TestStacksOfQuantisedExperts(t *testing.T) {
	c, h := sparse(false)
	c.Hidden, c.Experts.Inner = 128, 128
	c.Quantisation = model.Quantisation{Method: "fp8", Side: 128}
	for _, s := range c.Tensors() {
		if s.Kind != model.ExpertTensor {
			h.put(weights.BF16, s.Name, s.Shape...)
		}
	}
	for e := range 4 {
		for _, part := range []string{"gate_proj", "up_proj", "down_proj"} {
			name := fmt.Sprintf("%s%d.%s.weight", expertsPrefix, e, part)
			h.put(weights.F8_E4M3, name, 128, 128)
			for i := range h[name].Data {
				h[name].Data[i] &= 0x77 // numbers
			}
			h.put(weights.F32, name+"_scale_inv", 1, 1)
		}
	}
	tensors, err := c.Published(h)
	if err == nil {
		err = c.CheckTensors(tensors)
	}
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensors.Tensor(expertsPrefix + "up_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	all := rows(t, x)
	for e := range 4 {
		name := fmt.Sprintf("%s%d.up_proj.weight", expertsPrefix, e)
		one, err := weights.Float8(h[name], h[name+"_scale_inv"], 128)
		if err != nil {
			t.Fatal(err)
		}
		own := rows(t, one)
		if !slices.Equal(all[e*len(own):(e+1)*len(own)], own) {
			t.Errorf("expert %d has other rows in the stack", e)
		}
	}
	delete(h, expertsPrefix+"2.up_proj.weight_scale_inv")
	if _, err := c.Published(h); !errors.Is(err, weights.ErrMissing) || !strings.Contains(err.Error(), "2.up_proj") {
		t.Errorf("no scale: %v", err)
	}
}
