package model_test

import (
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/kernels/device"
)

// floatMix is a checkpoint of bfloat16 whose matrices have the type that pick returns for their name, or are the values
// of these in float32.
type floatMix struct {
	model.Tensors
	pick   func(name string) weights.DType
	values bool
}

func (m floatMix) Tensor(name string) (weights.Tensor, error) {
	x, err := m.Tensors.Tensor(name)
	if err != nil || len(x.Shape) < 2 || x.DType != weights.BF16 {
		return x, err
	}
	d := m.pick(name)
	if d == weights.BF16 && !m.values {
		return x, nil
	}
	elements := asFloat32(x)
	x.DType, x.Data = weights.F32, nil
	if d == weights.F16 && !m.values {
		x.DType = weights.F16
	}
	for _, v := range elements {
		if d == weights.F16 && math.Abs(float64(v)) < 0x1p-13 {
			v = 0 // float16 has fewer bits there
		}
		switch {
		case x.DType == weights.F32:
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(v))
		case v == 0:
			x.Data = append(x.Data, 0, 0)
		default:
			x.Data = binary.LittleEndian.AppendUint16(x.Data, float16(float64(v)))
		}
	}
	return x, nil
}

// byParts returns a pick: the type of the first list with a part of the name, or float32.
func byParts(bfloat16, halves string) func(string) weights.DType {
	return func(name string) weights.DType {
		has := func(part string) bool { return strings.Contains(name, part) }
		switch {
		case slices.ContainsFunc(strings.Fields(bfloat16), has):
			return weights.BF16
		case slices.ContainsFunc(strings.Fields(halves), has):
			return weights.F16
		}
		return weights.F32
	}
}

func mixedCheckpoint(t *testing.T, name string, pick func(string) weights.DType, values bool) (model.Config, model.Tensors) {
	t.Helper()
	return checkpointAs(t, name, func(w model.Tensors) model.Tensors { return floatMix{w, pick, values} })
}

// Matrices in float16 and float32 give the logits of their values, bit for bit; those in bfloat16 beside them differ by
// what their rounded activations do. A GGUF file of them is as good as safetensors, and so are experts.
func TestFloatTypesMix(t *testing.T) {
	for _, test := range []struct{ name, bfloat16, halves string }{
		{"llama-2", "", "embed v_proj down_proj"}, {"llama-2", "down_proj q_proj", "embed gate_proj"},
		{"qwen2", "down_proj", "lm_head embed"}, {"olmoe", "experts", ""}, {"olmoe", "", "experts"},
	} {
		c, mix := mixedCheckpoint(t, test.name, byParts(test.bfloat16, test.halves), false)
		_, values := mixedCheckpoint(t, test.name, byParts(test.bfloat16, test.halves), true)
		got, tensors, err := parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, mix, same(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.CheckTensors(mix), got.CheckTensors(tensors)); err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		tokens := loadGolden(t, filepath.Join("testdata", test.name), 5, c.Vocab)[2].Tokens
		want := run(t, c, values, tokens)
		file, published := run(t, got, tensors, tokens), run(t, c, mix, tokens)
		for i := range want {
			e := relativeError(file[i], want[i])
			if !slices.Equal(file[i], published[i]) || test.bfloat16 == "" && e != 0 || !(e < 2e-2) {
				t.Errorf("%+v: logits %d differ by %.1e", test, i, e)
			}
		}
	}
}

// A GPU refuses, by name, types that one op multiplies and that it packs differently, and no others.
func TestFloatTypesMixOnGPU(t *testing.T) {
	for _, test := range []struct{ bfloat16, halves, names string }{
		{"proj", "embed lm_head", ""}, {"gate_proj up_proj", "down_proj", ""}, {"q_proj up_proj", "", ""},
		{"q_proj", "k_proj", "0.self_attn.q_proj"}, {"", "up_proj", "0.mlp.gate_proj"},
	} {
		c, mix := mixedCheckpoint(t, "llama-2", byParts(test.bfloat16, test.halves), false)
		err := c.CheckOps(c.Formats(mix))
		if (err == nil) != (test.names == "") || err != nil && (!strings.Contains(err.Error(), test.names) ||
			!errors.Is(err, device.ErrBadShape)) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
