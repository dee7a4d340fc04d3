package model

import (
	"math"
	"slices"
)

// frequency returns frequency i of d/2, in radians per token, before scaling.
func frequency(theta float64, i, d int) float32 {
	return float32(1 / math.Pow(theta, float64(2*i)/float64(d)))
}

// RoPEBytes returns the size of all tables of RoPE on a device.
func (c Config) RoPEBytes() int64 {
	others := int64(c.ropeTables()-1) * int64(c.tableDim())
	return 4 * int64(c.Context) * (int64(c.wide().tableDim()) + others)
}

// OnesBytes returns the size of the ones that layers without norms before them have as their norms.
func (c Config) OnesBytes() int64 {
	if !c.NoNormsBefore {
		return 0
	}
	return 4 * int64(c.Hidden)
}

// ropeTables returns the number of tables: one, one more if layers have no RoPE, and one for LocalTheta.
func (c Config) ropeTables() int {
	n := 1
	if c.hasUnrotated() {
		n++
	}
	if c.LocalTheta != 0 {
		n++
	}
	return n
}

// hasUnrotated reports whether a layer has no RoPE.
func (c Config) hasUnrotated() bool { return slices.Contains(c.NoRoPE, true) }

// ofLocal returns c with the RoPE of LocalTheta alone.
func (c Config) ofLocal() Config {
	c.RoPETheta, c.RoPE, c.RoPEDivisors = c.LocalTheta, RoPEScaling{}, nil
	return c
}

// ropeTable returns cos and sin of position·frequency[i] as [context][d/2][cos, sin], times the attention factor.
// frequency[i] is theta^(-2i/r), scaled or divided, where RoPE rotates r of d elements; the last (d-r)/2 pairs have cos
// 1 and sin 0. Angles are rounded to float32, as in training.
func ropeTable(c Config) []float32 {
	r, t := c.rotated(), identityTable(c)
	frequencies := make([]float32, r/2)
	for i := range frequencies {
		frequencies[i] = c.RoPE.scaled(frequency(c.RoPETheta, i, r), c.RoPETheta, i, r)
		if c.RoPEDivisors != nil {
			frequencies[i] /= c.RoPEDivisors[i]
		}
	}
	attention := c.RoPE.attention()
	for position := range c.Context {
		row := t[position*c.tableDim():]
		for i, frequency := range frequencies {
			sin, cos := math.Sincos(float64(float32(position) * frequency))
			row[2*i], row[2*i+1] = attention*float32(cos), attention*float32(sin)
		}
	}
	return t
}

// identityTable returns a table that rotates nothing.
func identityTable(c Config) []float32 {
	t := make([]float32, c.Context*c.tableDim())
	for i := 0; i < len(t); i += 2 {
		t[i] = 1
	}
	return t
}

// headOrder returns which row of a checkpoint's head becomes each row of ours; nil: all stay. RoPE on a device rotates
// rows j and j + HeadDim/2. In a checkpoint it rotates the first r rows, j and j + r/2, or neighbours (Interleaved).
// The same order in q and k changes no product of the two.
func (c Config) headOrder() []int {
	d, r := c.HeadDim, c.rotated()
	if r == d && !c.Interleaved {
		return nil
	}
	order := make([]int, d)
	for j := range d / 2 {
		a, b := j, j+r/2
		if c.Interleaved || j >= r/2 {
			a, b = 2*j, 2*j+1
		}
		order[j], order[j+d/2] = a, b
	}
	return order
}

// ordered returns a copy of the rows of heads, each row of size elements, in an order of headOrder.
// (llama.cpp's converter interleaves: LlamaModel.permute.)
func ordered[T any](data []T, size int, order []int) []T {
	out := make([]T, 0, len(data))
	head := len(order) * size
	for at := 0; at < len(data); at += head {
		for _, row := range order {
			out = append(out, data[at+row*size:][:size]...)
		}
	}
	return out
}
