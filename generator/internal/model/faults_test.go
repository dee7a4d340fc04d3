package model_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// faults are mistakes in weights, each as small as the rounding of activations, that the comparison with transformers has
// to find: Reel gets tensors that plant has changed, transformers the right values.
var faults = []struct {
	format, name string
	plant        func(weights.Tensor) weights.Tensor
}{
	{"gguf Q8_0", "scales rounded to bfloat16", inBlocks(weights.Q8_0, roundHalf)},
	{"gguf Q4_K", "scales rounded to bfloat16", inBlocks(weights.Q4_K, func(b []byte) { roundHalf(b); roundHalf(b[2:]) })},
	{"gguf Q4_K", "no minimum in a block of 256", inBlocks(weights.Q4_K, func(b []byte) {
		if b[4] == 0 { // random
			b[2], b[3] = 0, 0
		}
	})},
	{"packed", "scales rounded to bfloat16", inTensors(".weight_scale", func(data []byte) {
		for at := 0; at < len(data); at += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(data[at:]))
			binary.LittleEndian.PutUint32(data[at:], uint32(bfloat16(v))<<16)
		}
	})},
}

// inTensors changes the data of tensors with that end of their names.
func inTensors(end string, change func([]byte)) func(weights.Tensor) weights.Tensor {
	return func(x weights.Tensor) weights.Tensor {
		if strings.HasSuffix(x.Name, end) {
			x.Data = slices.Clone(x.Data)
			change(x.Data)
		}
		return x
	}
}

// inBlocks changes each block of tensors of a type.
func inBlocks(d weights.DType, change func(block []byte)) func(weights.Tensor) weights.Tensor {
	_, size := d.Block()
	in := inTensors("", func(data []byte) {
		for at := 0; at < len(data); at += size {
			change(data[at : at+size])
		}
	})
	return func(x weights.Tensor) weights.Tensor {
		if x.DType == d {
			return in(x)
		}
		return x
	}
}

// roundHalf rounds a float16 to the 8 bits that bfloat16 has, to nearest.
func roundHalf(b []byte) { binary.LittleEndian.PutUint16(b, (binary.LittleEndian.Uint16(b)+4)&^7) }
