package engine

import (
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
)

// quantisedName is the name of a model whose random tensors are quantised where their rows are whole blocks.
const quantisedName = "quantised"

// microscaledName is that of one whose experts are MXFP4.
const microscaledName = "microscaled"

// quantisedConfig is the shape of a small model with matrices of Q4_K, Q8_0 and bfloat16.
func quantisedConfig() model.Config {
	c := nanoConfig()
	c.Name, c.Hidden, c.Inner = quantisedName, 256, 32
	return c
}

// randomBlocks returns a matrix in Q4_K, or Q8_0 if its rows are too short, with values of about ±0.03; other tensors
// are those of randomTensor.
func randomBlocks(name string, shape []int) weights.Tensor {
	t := randomTensor(name, shape)
	for _, d := range []weights.DType{weights.Q4_K, weights.Q8_0} {
		elements, bytes := d.Block()
		if len(shape) < 2 || shape[1]%elements != 0 {
			continue
		}
		t.DType, t.Data = d, t.Data[:d.Bytes(shape[0]*shape[1])]
		for at := 0; at < len(t.Data); at += bytes {
			t.Data[at+1] = 0x08 | t.Data[at+1]&3 // the scale, a float16 of about 1/8192
			if d == weights.Q4_K {
				t.Data[at+3] = 0x0c | t.Data[at+3]&3 // that of the minima
			}
		}
		break
	}
	return t
}

// microscaled returns a matrix in MXFP4 with values of up to ±0.09.
func microscaled(name string, shape []int) weights.Tensor {
	t := randomTensor(name, shape)
	elements, bytes := weights.MXFP4.Block()
	t.DType, t.Data = weights.MXFP4, t.Data[:shape[0]*shape[1]/elements*bytes]
	for at := 0; at < len(t.Data); at += bytes {
		t.Data[at] = 120 | t.Data[at]&1 // the exponent
	}
	return t
}

// The quantised model has the formats that its tests are about, and answers that differ.
func TestQuantisedModelIsQuantised(t *testing.T) {
	c, found := quantisedConfig(), map[weights.DType]int{}
	tensors := randomTensors{c}
	for _, name := range tensors.Names() {
		x, err := tensors.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		found[x.DType]++
	}
	if !c.Quantised(tensors) || found[weights.Q4_K] < 5 || found[weights.Q8_0] < 1 || found[weights.BF16] < 1 {
		t.Error(found)
	}
	b := builtModel(t, c, nano())
	b.run()
	tokens := map[int32]bool{}
	for i := range 20 {
		for _, token := range b.complete(Request{Tokens: []int32{int32(i % 16)}, MaxTokens: 5}).tokens {
			if tokens[token.ID] = true; token.Logprob < -30 || token.Logprob != token.Logprob {
				t.Fatalf("%+v", token)
			}
		}
	}
	if len(tokens) < 3 {
		t.Errorf("only the tokens %v", tokens)
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
}
