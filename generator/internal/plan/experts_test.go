package plan

import (
	"errors"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// qwen3MoE is Qwen3-30B-A3B.
var qwen3MoE = model.Config{Name: "qwen3_moe", Vocab: 151936, Hidden: 2048, Inner: 6144, Layers: 48, Heads: 32,
	KVHeads: 4, HeadDim: 128, Context: 40960, RMSNormEps: 1e-6, RoPETheta: 1e6, HeadNorms: true,
	Experts: &model.Experts{Count: 128, Used: 8, Inner: 768, Normalise: true}}

// Experts and routers count as what they are: 30.5 billion parameters, of which the experts have 29.0; routers are
// float32, and the results of a chunk's experts are part of step memory.
func TestPlanCountsExperts(t *testing.T) {
	if n := qwen3MoE.Parameters(); n/1e8 != 305 {
		t.Errorf("%d parameters, wants 30.5 billion", n)
	}
	p := Planner{Config: qwen3MoE, Profile: GPUProfile}
	p.Profile.block = 1
	s := p.size(4096, 1, Unlimited)
	want := map[model.TensorKind]int64{model.ExpertTensor: 48 * 3 * 128 * 768 * 2048 * 2,
		model.RouterTensor: 48 * 128 * 2048 * 4}
	for _, w := range s.weights {
		if bytes, ok := want[w.kind]; ok && w.bytes != bytes {
			t.Errorf("%s: %d bytes, wants %d", w.kind, w.bytes, bytes)
		}
		delete(want, w.kind)
		if w.kind == model.FeedForwardTensor {
			t.Errorf("%d bytes of feed-forwards, and no layer has one", w.bytes)
		}
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
	dense := qwen3MoE
	dense.Experts = nil
	results := 4 * int64(p.chunk(4096, 1)) * 8 * 2048
	without := (Planner{Config: dense, Profile: p.Profile}).size(4096, 1, Unlimited).Arena
	if s.Arena < without+results-4*int64(p.chunk(4096, 1))*6144 {
		t.Errorf("step memory of %d bytes leaves out results of experts, %d bytes", s.Arena, results)
	}
}

// Experts of a width that a GPU has no kernels for, and of two formats in one op, are refused by name.
func TestPlanRefusesExperts(t *testing.T) {
	narrow := qwen3MoE
	narrow.Experts = &model.Experts{Count: 128, Used: 8, Inner: 760}
	_, _, err := Planner{Config: narrow, Profile: GPUProfile}.Plan(Unlimited)
	if !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), "experts") {
		t.Errorf("a width of 760: %v", err)
	}
	formats := map[string]kernels.DType{}
	for _, s := range qwen3MoE.Tensors() {
		formats[s.Name] = kernels.Q4_K
	}
	formats["model.layers.3.mlp.experts.up_proj.weight"] = kernels.Q6_K
	_, _, err = Planner{Config: qwen3MoE, Profile: GPUProfile, Formats: formats}.Plan(Unlimited)
	if !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), "model.layers.3.mlp.experts") {
		t.Errorf("two formats: %v", err)
	}
}

// deepseek is DeepSeek-V2-Lite.
var deepseek = model.Config{Name: "deepseek_v2", Vocab: 102400, Hidden: 2048, Inner: 10944, Layers: 27, Heads: 16,
	KVHeads: 16, HeadDim: 192, Context: 163840, RMSNormEps: 1e-6, RoPETheta: 1e4, Interleaved: true,
	Latent:  &model.Latent{Rank: 512, Rope: 64, Nope: 128, Value: 128},
	Experts: &model.Experts{Count: 64, Used: 6, Inner: 1408, Shared: 2816, Dense: append([]bool{true}, make([]bool, 26)...)}}

// Latents are all that a page holds: 576 elements of 16 bits by token and layer. The matrices of kv_b_proj count as
// 16 bits in a quantised model too.
func TestPlanCountsLatents(t *testing.T) {
	if n := deepseek.Parameters(); n != 15706484224 {
		t.Errorf("%d parameters", n)
	}
	p := Planner{Config: deepseek, Profile: GPUProfile}
	p.Profile.block = 1
	s := p.size(4096, 1, Unlimited)
	if s.pageBytes != 27*576*2*pageTokens {
		t.Errorf("pages of %d bytes", s.pageBytes)
	}
	attention := func(s Sizes) int64 {
		for _, w := range s.weights {
			if w.kind == model.AttentionTensor {
				return w.bytes
			}
		}
		return 0
	}
	heads := int64(16 * 256 * 512)
	if got, want := attention(s), 27*2*(int64(2048*3072+2048*576+2048*2048)+heads); got != want {
		t.Errorf("%d bytes of attention, wants %d", got, want)
	}
	p.Formats = map[string]kernels.DType{}
	for _, t := range deepseek.Tensors() {
		p.Formats[t.Name] = kernels.Q8_0
	}
	quantised := attention(p.size(4096, 1, Unlimited))
	others := 27 * (kernels.PackedBytes(kernels.Q8_0, 3072, 2048) + kernels.PackedBytes(kernels.Q8_0, 576, 2048) +
		kernels.PackedBytes(kernels.Q8_0, 2048, 2048))
	if quantised != others+27*2*heads {
		t.Errorf("%d bytes of quantised attention, wants %d", quantised, others+27*2*heads)
	}
}

// A GPU is asked only for latents that its kernels have.
func TestPlanRefusesLatents(t *testing.T) {
	if _, _, err := (Planner{Config: deepseek, Profile: GPUProfile}).Plan(Unlimited); err != nil {
		t.Error(err)
	}
	long := deepseek
	long.Latent = &model.Latent{Rank: 768, Rope: 64, Nope: 128, Value: 128}
	_, _, err := Planner{Config: long, Profile: GPUProfile}.Plan(Unlimited)
	if !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), "kv_lora_rank 768") {
		t.Errorf("a latent of 768: %v", err)
	}
	wide := deepseek
	experts := *deepseek.Experts
	experts.Shared = 2820
	wide.Experts = &experts
	_, _, err = Planner{Config: wide, Profile: GPUProfile}.Plan(Unlimited)
	if !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), "experts") {
		t.Errorf("shared experts of 2820: %v", err)
	}
}
