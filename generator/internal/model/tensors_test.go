package model

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// headers is a checkpoint in memory.
type headers map[string]weights.Tensor

func (h headers) Tensor(name string) (weights.Tensor, error) {
	t, ok := h[name]
	if !ok {
		return t, weights.ErrMissing
	}
	return t, nil
}

func (h headers) Names() (names []string) {
	for name := range h {
		names = append(names, name)
	}
	return names
}

func micro() Config {
	return Config{Name: "llama", Vocab: 10, Hidden: 8, Inner: 12, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4,
		Context: 16, RMSNormEps: 1e-5, RoPETheta: 10000}
}

// headersOf returns tensors of zeros that fit c.
func headersOf(c Config) headers {
	h := headers{}
	for _, s := range c.Tensors() {
		data := make([]byte, 2*s.Elements())
		h[s.Name] = weights.Tensor{Name: s.Name, DType: weights.BF16, Shape: s.Shape, Data: data}
	}
	return h
}

func TestCheckpointsThatDoNotFit(t *testing.T) {
	const q = "model.layers.1.self_attn.q_proj.weight"
	const extraLayer, bias = "model.layers.2.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias"
	set := func(h headers, change func(q *weights.Tensor)) { x := h[q]; change(&x); h[q] = x }
	for name, c := range map[string]struct {
		change func(*Config, headers)
		want   error
		names  string
	}{
		"missing": {func(_ *Config, h headers) { delete(h, q) }, weights.ErrMissing, ""},
		"more layers": {func(_ *Config, h headers) {
			h[extraLayer] = h["model.norm.weight"]
		}, ErrTensor, "model.layers.2."},
		"biases":    {func(_ *Config, h headers) { h[bias] = h["model.norm.weight"] }, ErrTensor, "q_proj.bias"},
		"not fused": {func(c *Config, _ headers) { c.FusedQKV, c.FusedGateUp = true, true }, weights.ErrMissing, ""},
		"shape": {func(_ *Config, h headers) {
			set(h, func(q *weights.Tensor) { q.Shape = []int{4, 16} })
		}, ErrTensor, q},
		"rank": {func(_ *Config, h headers) {
			set(h, func(q *weights.Tensor) { q.Shape = []int{64} })
		}, ErrTensor, q},
		"quantised norm": {func(_ *Config, h headers) {
			n := h[normName]
			n.DType = weights.Q8_0
			h[normName] = n
		}, ErrTensor, normName},
		"other head though tied": {func(c *Config, h headers) {
			c.TiedHead = true
			h[headName].Data[7] = 1
		}, ErrTensor, headName},
		"scaled, with freq": {func(c *Config, h headers) {
			c.RoPE.Factor = 2
			h["model.layers.0.self_attn.rotary_emb.inv_freq"] = weights.Tensor{DType: weights.F32, Shape: []int{2}}
		}, ErrTensor, "inv_freq"},
	} {
		config := micro()
		h := headersOf(config)
		c.change(&config, h)
		memory := device.NewHost(device.HostOptions{Workers: 1})
		m, err := Load(memory, config, h, func(float64) {})
		if m != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, wants %v naming %q", name, err, c.want, c.names)
		}
		if live := memory.Live(); live.Buffers != 0 {
			t.Errorf("%s: %d buffers were allocated", name, live.Buffers)
		}
		memory.Close()
	}
}

// Redundant tensors are accepted.
func TestRedundantTensors(t *testing.T) {
	c := micro()
	h := headersOf(c)
	frequencies := weights.Tensor{DType: weights.F32, Shape: []int{2}, Data: make([]byte, 8)}
	h["model.layers.0.self_attn.rotary_emb.inv_freq"] = frequencies
	if err := c.CheckTensors(h); err != nil {
		t.Error(err)
	}
	c.TiedHead = true
	if err := c.CheckTensors(h); err != nil {
		t.Error(err)
	}
}

// A failure at any allocation frees the earlier ones, and Free frees all.
func TestLoadGivesBack(t *testing.T) {
	c := micro()
	c.Bias, c.HeadNorms, c.FusedQKV, c.FusedGateUp = true, true, true, true
	memory := device.NewHost(device.HostOptions{Workers: 1})
	defer memory.Close()
	m, err := Load(memory, c, headersOf(c), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	calls := len(m.allocated)
	if err := m.Free(memory); err != nil || memory.Live().Buffers != 0 {
		t.Fatalf("%v, %d buffers are left", err, memory.Live().Buffers)
	}
	for n := range calls {
		memory.Faults().FailAt(n+1, false)
		if _, err := Load(memory, c, headersOf(c), func(float64) {}); err == nil || memory.Live().Buffers != 0 {
			t.Errorf("failure at allocation %d: %v, %d buffers are left", n, err, memory.Live().Buffers)
		}
	}
}

func TestProgressEndsAtOne(t *testing.T) {
	memory := device.NewHost(device.HostOptions{Workers: 1})
	defer memory.Close()
	var shares []float64
	report := func(share float64) { shares = append(shares, share) }
	if _, err := Load(memory, micro(), headersOf(micro()), report); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(shares) || shares[0] >= 0.5 || shares[len(shares)-1] != 1 {
		t.Errorf("%v", shares)
	}
}
