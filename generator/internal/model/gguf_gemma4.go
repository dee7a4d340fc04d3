package model

import (
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// Keys of Gemma 4 in GGUF. (llama.cpp: src/models/gemma4.cpp.)
const (
	keyLocalHeadDim  = "attention.key_length_swa"
	keyLocalValueDim = "attention.value_length_swa"
	keyLocalRotated  = "rope.dimension_count_swa"
	keyPerLayer      = "embedding_length_per_layer_input"
	keySharedKV      = "attention.shared_kv_layers"
)

// gemma4Ends end an answer, a turn, and a call whose result comes next. generation_config.json has them, and GGUF only
// the first one.
var gemma4Ends = []string{"<eos>", "<turn|>", "<|tool_response>"}

// ggufGemma4 sets what Gemma 4 has beside. Until here c has the heads of layers without a window, and the feed-forward
// and the KV heads of the first layer.
func ggufGemma4(r *ggufReader, c *Config) {
	c.LogitsCap = float32(r.float(keyLogitsCap, minScale, maxScale, 30))
	c.LayerScales = r.hasTensor("blk.0." + ggufNames[layerScalar])
	windowed := r.pattern(c.Layers)
	if windowed == nil {
		return
	}
	r.wide(c, windowed)
	c.LocalTheta, c.Local = r.float(keyLocalTheta, minTheta, maxTheta, 1e4), windowed
	r.setWindows(c, windowed)
	if r.has(r.arch + "." + keyPerLayer) {
		c.PerLayer = int(min(maxDimension, r.optional(keyPerLayer)))
	}
	if r.has(r.arch + "." + keySharedKV) {
		if n := int(min(maxLayers, r.optional(keySharedKV))); n > 0 {
			c.SharedKV = &SharedKV{Layers: n, Inner: r.byLayer(keyInner, maxDimension, c.Layers)[c.Layers-1]}
		}
	}
	for i, n := range r.byLayer(keyInner, maxDimension, c.Layers) {
		if c.At(i).Inner != n {
			r.refuse("%s.%s is %d in layer %d", r.arch, keyInner, n, i)
		}
	}
	r.endTexts(c, gemma4Ends)
}

// wide takes the heads of layers with a window and of those without apart.
func (r *ggufReader) wide(c *Config, windowed []bool) {
	w := &Wide{HeadDim: c.HeadDim}
	c.HeadDim = r.number(keyLocalHeadDim, maxHeadDim, -1)
	for _, name := range []string{keyLocalValueDim, keyLocalRotated} {
		if n := r.number(name, maxDimension, c.HeadDim); n != c.HeadDim {
			r.refuse("%s.%s is %d, and a head has %d elements", r.arch, name, n, c.HeadDim)
		}
	}
	local := 0
	for i, n := range r.byLayer(keyKVHeads, maxHeads, c.Layers) {
		w.Layers = append(w.Layers, !windowed[i])
		own := &w.KVHeads
		if windowed[i] {
			own = &local
		}
		if *own == 0 {
			*own = n
		}
		if *own != n {
			r.refuse("%s.%s is %d in layer %d, and %d in others like it", r.arch, keyKVHeads, n, i, *own)
		}
		w.KeysAreValues = w.KeysAreValues || !windowed[i] && r.hasTensor(fmt.Sprintf("blk.%d.attn_k.weight", i)) &&
			!r.hasTensor(fmt.Sprintf("blk.%d.attn_v.weight", i))
	}
	if w.KVHeads == 0 {
		r.refuse("%s.%s has no layer without a window", r.arch, keyPattern)
	}
	if local > 0 {
		c.KVHeads = local
	}
	c.Wide = w
}

// byLayer reads a number from 1 to most for each layer: an array, or one for all.
func (r *ggufReader) byLayer(name string, most, layers int) []int {
	list, ok := r.metadata.Ints(r.arch + "." + name)
	if !ok {
		return slices.Repeat([]int{r.number(name, most, -1)}, layers)
	}
	all := make([]int, layers)
	for i := range all {
		if i >= len(list) || list[i] < 1 || list[i] > int64(most) {
			r.fail(fmt.Errorf("model: %s.%s is %v, wants numbers from 1 to %d for %d layers", r.arch, name, list, most,
				layers))
			return slices.Repeat([]int{1}, layers)
		}
		all[i] = int(list[i])
	}
	return all
}

// proportional reads divisors of frequencies of which the last ones are infinite, nearly: those pairs do not rotate.
// (llama.cpp: conversion/gemma.py.)
func (r *ggufReader) proportional(c *Config) {
	const infinite = 1e29
	values, file := r.unbounded(c, ggufDivisors)
	if values == nil {
		return
	}
	n := slices.IndexFunc(values, func(v float32) bool { return v >= infinite })
	if n < 0 {
		n = len(values)
	}
	c.RoPE = RoPEScaling{Kind: ProportionalRoPE, Factor: 1, Fraction: float64(n) / float64(len(values))}
	if n > 0 {
		c.RoPE.Factor = float64(values[0])
	}
	for i, v := range values {
		if i < n && v != values[0] || i >= n && !(v >= infinite) {
			r.refuse("%s: %s has %v beside %v", file, ggufDivisors, v, values[0])
			return
		}
	}
}

// expertsBeside sets experts beside the feed-forward, of which the file has the numbers.
func (r *ggufReader) expertsBeside(c *Config) {
	c.setExpertsBeside(c.Experts.Count, c.Experts.Used, r.number(keyExpertDim, maxDimension, -1))
}

// gatesTogether is a GGUF file of which the gates of experts are in one tensor with ups: ffn_gate_up_exps
// [experts][2·inner][hidden], first all of gate.
type gatesTogether struct {
	Tensors
	count int
}

const ggufGateUp = "ffn_gate_up_exps.weight"

// Tensor returns a part of such a tensor under the name of its own that it has in other files.
func (g gatesTogether) Tensor(name string) (weights.Tensor, error) {
	t, err := g.Tensors.Tensor(name)
	if err == nil {
		return t, nil
	}
	for part, own := range []string{ggufNames[expertsGate], ggufNames[expertsUp]} {
		prefix, is := strings.CutSuffix(name, own)
		both, missing := g.Tensors.Tensor(prefix + ggufGateUp)
		if !is || missing != nil {
			continue
		}
		if len(both.Shape) != 3 || both.Shape[0] != g.count || both.Shape[1]%2 != 0 {
			return t, fmt.Errorf("%w: %s: %s has the shape %v, wants those of %d experts", ErrTensor, both.File, both.Name,
				both.Shape, g.count)
		}
		k := stackSpec{part: part, count: g.count, rows: both.Shape[1] / 2, cols: both.Shape[2]}
		made := k.ofBoth(both)
		made.Name, made.Shape = name, []int{k.count, k.rows, k.cols}
		return made, nil
	}
	return t, err
}

// Names returns the names of all tensors, with those of parts in the place of such.
func (g gatesTogether) Names() (names []string) {
	for _, name := range g.Tensors.Names() {
		if prefix, is := strings.CutSuffix(name, ggufGateUp); is {
			names = append(names, prefix+ggufNames[expertsGate], prefix+ggufNames[expertsUp])
		} else {
			names = append(names, name)
		}
	}
	return names
}
