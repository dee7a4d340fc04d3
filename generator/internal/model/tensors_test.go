package model

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel/generator/internal/weights"
	"reel/kernels/device"
)

// headers are tensors without a checkpoint.
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
	return Config{Name: "llama", Vocab: 10, Hidden: 8, Inner: 12, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, Context: 16, RMSNormEps: 1e-5, RoPETheta: 10000}
}

// headersOf are zero tensors that fit c.
func headersOf(c Config) headers {
	h := headers{}
	for _, s := range c.Tensors() {
		h[s.Name] = weights.Tensor{Name: s.Name, DType: weights.BF16, Shape: s.Shape, Data: make([]byte, 2*s.Elements())}
	}
	return h
}

func TestCheckpointsThatDoNotFit(t *testing.T) {
	const q = "model.layers.1.self_attn.q_proj.weight"
	for name, c := range map[string]struct {
		change func(*Config, headers)
		want   error
		names  string
	}{
		"missing":          {func(_ *Config, h headers) { delete(h, q) }, weights.ErrMissing, ""},
		"one more layer":   {func(_ *Config, h headers) { h["model.layers.2.input_layernorm.weight"] = h["model.norm.weight"] }, ErrTensor, "model.layers.2."},
		"biases":           {func(_ *Config, h headers) { h["model.layers.0.self_attn.q_proj.bias"] = h["model.norm.weight"] }, ErrTensor, "q_proj.bias"},
		"a fused one":      {func(c *Config, _ headers) { c.Fused = true }, weights.ErrMissing, ""},
		"shape":            {func(_ *Config, h headers) { x := h[q]; x.Shape = []int{4, 16}; h[q] = x }, ErrTensor, q},
		"rank":             {func(_ *Config, h headers) { x := h[q]; x.Shape = []int{64}; h[q] = x }, ErrTensor, q},
		"two types":        {func(_ *Config, h headers) { x := h[q]; x.DType = weights.F16; h[q] = x }, ErrTensor, "F16"},
		"head though tied": {func(c *Config, h headers) { c.TiedHead = true; h[headName].Data[7] = 1 }, ErrTensor, headName},
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
			t.Errorf("%s: %d buffers were taken", name, live.Buffers)
		}
		memory.Close()
	}
}

// What a checkpoint says twice is no fault.
func TestRedundantTensors(t *testing.T) {
	c := micro()
	h := headersOf(c)
	h["model.layers.0.self_attn.rotary_emb.inv_freq"] = weights.Tensor{DType: weights.F32, Shape: []int{2}, Data: make([]byte, 8)}
	if err := c.CheckTensors(h); err != nil {
		t.Error(err)
	}
	c.TiedHead = true
	if err := c.CheckTensors(h); err != nil {
		t.Error(err)
	}
}

// A failure at any allocation gives back what came before it, and Free all.
func TestLoadGivesBack(t *testing.T) {
	c := micro()
	c.Bias, c.HeadNorms, c.Fused = true, true, true
	memory := device.NewHost(device.HostOptions{Workers: 1})
	defer memory.Close()
	m, err := Load(memory, c, headersOf(c), func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	calls := len(m.taken)
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
	if _, err := Load(memory, micro(), headersOf(micro()), func(share float64) { shares = append(shares, share) }); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(shares) || shares[0] >= 0.5 || shares[len(shares)-1] != 1 {
		t.Errorf("%v", shares)
	}
}
