package model

import (
	"fmt"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// ollamaHalf is a tensor that is made of one of the file.
type ollamaHalf struct {
	from string // the file's name
	make func(whole weights.Tensor) (weights.Tensor, error)
}

// of returns the tensor, under llama.cpp's name.
func (h ollamaHalf) of(file Tensors, name string) (weights.Tensor, error) {
	t, err := file.Tensor(h.from)
	if err == nil {
		t, err = h.make(t)
	}
	t.Name = name
	return t, err
}

// gptOssHalves finds what the first converters of gpt-oss wrote in forms of their own:
//
//	attn_qkv [(heads + 2·kv)·dim][hidden], with a bias: rows of q, then of k, then of v
//	ffn_gate_up_exps [E][2·inner][hidden], with a bias: rows of gate and up in turn
//	any stack in MXFP4 of which a byte holds two columns beside each other
func (o *ollamaFile) gptOssHalves() {
	for _, own := range o.file.Names() {
		if layer, part, ok := strings.Cut(own, "attn_qkv."); ok {
			o.queryKeyValue(own, layer, part)
		}
		if layer, part, ok := strings.Cut(own, "ffn_gate_up_exps."); ok {
			o.halves[layer+"ffn_gate_exps."+part] = ollamaHalf{own, inTurn(gatePart)}
			o.halves[layer+"ffn_up_exps."+part] = ollamaHalf{own, inTurn(upPart)}
		} else if t, err := o.file.Tensor(own); err == nil && t.Adjacent {
			o.halves[own] = ollamaHalf{own, func(t weights.Tensor) (weights.Tensor, error) { return alternate(t, 1, 0) }}
		}
	}
}

// queryKeyValue cuts a tensor of q, k and v.
func (o *ollamaFile) queryKeyValue(own, layer, part string) {
	heads, _ := o.Uint(o.key(keyHeads))
	kv, _ := o.Uint(o.key(keyKVHeads))
	dim, _ := o.Uint(o.key(keyHeadDim))
	if heads > maxHeads || kv > maxHeads || dim > maxHeadDim {
		return // what the config says is refused later
	}
	first := 0
	for i, name := range []string{"attn_q.", "attn_k.", "attn_v."} {
		n, begin := int(kv*dim), first
		if i == 0 {
			n = int(heads * dim)
		}
		o.halves[layer+name+part] = ollamaHalf{own, func(t weights.Tensor) (weights.Tensor, error) {
			return cutRows(t, begin, n)
		}}
		first += n
	}
}

// cutRows returns n rows of a matrix, or elements of a vector, from first on.
func cutRows(t weights.Tensor, first, n int) (weights.Tensor, error) {
	size := 0
	switch {
	case len(t.Shape) == 2:
		size = t.DType.Bytes(t.Shape[1])
	case len(t.Shape) == 1 && !t.DType.Quantised():
		size = t.DType.Size()
	}
	if size == 0 || first+n > t.Shape[0] {
		return t, fmt.Errorf("%w: %s: %s has the shape %v, and the config asks for rows %d to %d", ErrTensor, t.File, t.Name,
			t.Shape, first, first+n-1)
	}
	t.Data = t.Data[first*size : (first+n)*size]
	t.Shape = append([]int{n}, t.Shape[1:]...)
	return t, nil
}

// inTurn returns what makes one of two stacks, or of their biases, of a tensor with the rows of both in turn.
func inTurn(place int) func(weights.Tensor) (weights.Tensor, error) {
	return func(t weights.Tensor) (weights.Tensor, error) {
		switch {
		case len(t.Shape) == 3 && t.Shape[1]%2 == 0:
			return alternate(t, 2, place)
		case len(t.Shape) == 2 && t.Shape[1]%2 == 0 && !t.DType.Quantised():
			size := t.DType.Size()
			own := make([]byte, 0, len(t.Data)/2)
			for at := place * size; at < len(t.Data); at += 2 * size {
				own = append(own, t.Data[at:at+size]...)
			}
			t.Data, t.Shape = own, []int{t.Shape[0], t.Shape[1] / 2}
			return t, nil
		}
		return t, fmt.Errorf("%w: %s: %s is %v%v, wants gates and ups of experts in turn", ErrTensor, t.File, t.Name, t.DType,
			t.Shape)
	}
}

// alternate makes a stack of each parts-th row of a tensor [E][rows][cols], from row place on, with the columns of
// MXFP4 where GGUF has them.
func alternate(t weights.Tensor, parts, place int) (weights.Tensor, error) {
	if len(t.Shape) != 3 {
		return t, fmt.Errorf("%w: %s: %s has the shape %v, wants one of experts", ErrTensor, t.File, t.Name, t.Shape)
	}
	k := stackSpec{part: place, count: t.Shape[0], rows: t.Shape[1] / parts, cols: t.Shape[2]}
	size := t.DType.Bytes(k.cols)
	made := k.made(t.DType, []weights.Tensor{t}, func(dst []byte, first int) error {
		for ; len(dst) > 0; dst, first = dst[size:], first+1 {
			row := t.Data[(parts*first+place)*size:][:size] // experts follow one another
			if t.Adjacent {
				weights.Apart(dst[:size], row)
			} else {
				copy(dst, row)
			}
		}
		return nil
	})
	made.Shape = []int{k.count, k.rows, k.cols}
	return made, nil
}
