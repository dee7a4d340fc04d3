package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Wide describes layers whose heads are wider, as of Gemma 4. The others have Config.HeadDim and Config.KVHeads, and the
// RoPE of Config.LocalTheta.
type Wide struct {
	Layers           []bool // by layer
	HeadDim, KVHeads int
	// KeysAreValues: such a layer has no matrix for v, whose product is that of k.
	KeysAreValues bool `json:",omitempty"`
}

// SharedKV describes the last layers of a model that have no keys and values of their own: each uses those of the last
// layer before them that is like it in Config.Wide. (Gemma 3n and 4.)
type SharedKV struct {
	Layers int // the last so many
	Inner  int // the width of their feed-forwards
}

// At returns c as layer i has it: with its heads and its feed-forward.
func (c Config) At(i int) Config {
	if c.Wide != nil && c.Wide.Layers[i] {
		c.HeadDim, c.KVHeads = c.Wide.HeadDim, c.Wide.KVHeads
	}
	if c.sharesKV(i) {
		c.Inner = c.SharedKV.Inner
	}
	return c
}

// kinds returns c as the layers of each kind have it.
func (c Config) kinds() (all []Config) {
	if c.Wide == nil && c.SharedKV == nil {
		return []Config{c}
	}
	type kind struct{ headDim, kvHeads, inner int }
	seen := map[kind]bool{}
	for i := range c.Layers {
		each := c.At(i)
		if k := (kind{each.HeadDim, each.KVHeads, each.Inner}); !seen[k] {
			seen[k], all = true, append(all, each)
		}
	}
	return all
}

// most returns the greatest of a size over the kinds of layers.
func (c Config) most(size func(c Config) int) (n int) {
	for _, each := range c.kinds() {
		n = max(n, size(each))
	}
	return n
}

// wide returns c as layers with RoPETheta have it.
func (c Config) wide() Config {
	if c.Wide != nil {
		c.HeadDim = c.Wide.HeadDim
	}
	return c
}

// valuesAreKeys reports whether a layer has no matrix for v.
func (c Config) valuesAreKeys(layer int) bool {
	return c.Wide != nil && c.Wide.KeysAreValues && c.Wide.Layers[layer]
}

// ownKV returns the number of layers with keys and values of their own, which come first.
func (c Config) ownKV() int {
	if c.SharedKV == nil {
		return c.Layers
	}
	return c.Layers - c.SharedKV.Layers
}

// sharesKV reports whether a layer uses the keys and values of another one.
func (c Config) sharesKV(layer int) bool { return layer >= c.ownKV() }

// kvSource returns the layer whose keys and values a layer uses: its own, or those of an earlier one.
func (c Config) kvSource(layer int) int {
	if !c.sharesKV(layer) {
		return layer
	}
	i := c.ownKV() - 1
	for i > 0 && c.isWide(i) != c.isWide(layer) {
		i--
	}
	return i
}

// isWide reports whether a layer is one of Wide.
func (c Config) isWide(layer int) bool { return c.Wide != nil && c.Wide.Layers[layer] }

// unusedKV reports whether a tensor makes keys or values of a layer that uses those of another one. Published checkpoints
// and GGUF files hold such, also as codes and scales.
func (c Config) unusedKV(name string) bool {
	i, own, ok := LayerOf(name)
	made := func(unused string) bool {
		return strings.HasPrefix(own, strings.TrimSuffix(unused, partWeight)+".") || own == ggufNames[unused]
	}
	return ok && i < c.Layers && c.sharesKV(i) && slices.ContainsFunc([]string{kProj, vProj, kNorm}, made)
}

// LayerOf splits the name of a layer's tensor, in a checkpoint or in GGUF, into the layer and the rest.
func LayerOf(name string) (layer int, own string, ok bool) {
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		rest, ok = strings.CutPrefix(name, "blk.")
	}
	number, own, _ := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return layer, own, ok && err == nil
}

// checkLayers refuses layers that differ in ways that do not fit each other.
func (c Config) checkLayers() error {
	if w := c.Wide; w != nil {
		if err := checkDimensions(dimension{"global_head_dim", w.HeadDim, maxHeadDim},
			dimension{"num_global_key_value_heads", w.KVHeads, maxHeads}); err != nil {
			return err
		}
		if w.HeadDim < c.HeadDim && slices.Contains(w.Layers, false) {
			return fmt.Errorf("%w: config.json: global_head_dim is %d, less than the head_dim of %d", ErrUnsupported,
				w.HeadDim, c.HeadDim)
		}
		if err := c.wideHeads(); err != nil {
			return err
		}
	}
	if c.PerLayer < 0 || c.PerLayer > maxHeadDim || c.PerLayer*c.Layers > maxDimension {
		return fmt.Errorf("model: config.json: hidden_size_per_layer_input is %d for %d layers, wants 0 to %d, and at "+
			"most %d together", c.PerLayer, c.Layers, maxHeadDim, maxDimension)
	}
	s := c.SharedKV
	if s == nil {
		return nil
	}
	if s.Layers < 1 || s.Layers >= c.Layers {
		return outside("num_kv_shared_layers", s.Layers, 0, c.Layers-1)
	}
	if s.Inner < 1 || s.Inner > maxDimension {
		return outside("intermediate_size of layers that share keys and values", s.Inner, 1, maxDimension)
	}
	if s.Inner != c.Inner && c.expertsBeside() {
		return fmt.Errorf("%w: config.json: use_double_wide_mlp beside enable_moe_block, in layers that share keys and "+
			"values", ErrUnsupported)
	}
	for i := c.ownKV(); i < c.Layers; i++ {
		if c.isWide(c.kvSource(i)) != c.isWide(i) {
			return fmt.Errorf("model: config.json: num_kv_shared_layers is %d, but no layer before them is like layer %d",
				s.Layers, i)
		}
	}
	return nil
}

// wideHeads checks the heads of the layers of Wide as check does those of the others.
func (c Config) wideHeads() error {
	c.HeadDim, c.KVHeads = c.Wide.HeadDim, c.Wide.KVHeads
	return c.checkHeads()
}
