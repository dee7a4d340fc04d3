package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// The two models of the VRAM guide.
var (
	qwen = model.Config{Name: "qwen2", Vocab: 151936, Hidden: 896, Inner: 4864, Layers: 24,
		Heads: 14, KVHeads: 2, HeadDim: 64,
		Context: 32768, RMSNormEps: 1e-6, RoPETheta: 1e6, TiedHead: true, Bias: true}
	phi = model.Config{Name: "phi3", Vocab: 32064, Hidden: 3072, Inner: 8192, Layers: 32,
		Heads: 32, KVHeads: 32, HeadDim: 96,
		Context: 4096, RMSNormEps: 1e-5, RoPETheta: 1e4, FusedQKV: true, FusedGateUp: true}
)

// guideParameters is the guide's formula: an embedding, and in each layer four square
// attention matrices, two feed-forward matrices and two norms.
func guideParameters(c model.Config) int64 {
	h, f := int64(c.Hidden), int64(c.Inner)
	return int64(c.Vocab)*h + int64(c.Layers)*(4*h*h+2*h*f+2*h)
}

// The guide's formula leaves out the third matrix of a gated feed-forward, biases, the last
// norm and a separate head, and ignores grouped keys and values. Its written sums are smaller
// still: 3.5 MB a layer for Qwen2.5-0.5B and 75 MB for Phi-3, but its own formula gives 23.9
// and 176. Its KV cache is right except for the trash page.
func TestPlanBesideTheGuide(t *testing.T) {
	for _, c := range []struct {
		config             model.Config
		context            int
		differs            func(h, f, layers int64) int64 // from the formula, in parameters
		layerMB            int64                          // by the guide's formula
		writtenMB, exactMB int64                          // of weights: the guide's sum and the exact one
		kv                 int64                          // bytes by the guide's formula
	}{
		{qwen, 2048, func(h, f, layers int64) int64 { return layers*(h*f-2*h*(h-2*64)+h+2*2*64) + h },
			23, 356, 988, 2 * 24 * 2 * 64 * 2048 * 2},
		{phi, 4096, func(h, f, layers int64) int64 { return layers*h*f + h + 32064*h },
			176, 2597, 7642, 2 * 32 * 32 * 96 * 4096 * 2},
	} {
		h, f, layers := int64(c.config.Hidden), int64(c.config.Inner), int64(c.config.Layers)
		exact := c.config.Parameters()
		if exact != guideParameters(c.config)+c.differs(h, f, layers) {
			t.Errorf("%s: %d parameters, the guide's formula has %d", c.config.Name, exact, guideParameters(c.config))
		}
		if got := (4*h*h + 2*h*f + 2*h) * 2 / 1e6; got != c.layerMB {
			t.Errorf("%s: the guide's formula gives %d MB a layer, wants %d", c.config.Name, got, c.layerMB)
		}
		if got := exact * 2 / 1e6; got != c.exactMB || got < 5*c.writtenMB/2 {
			t.Errorf("%s: weights of %d MB, wants %d, which is far above the guide's %d",
				c.config.Name, got, c.exactMB, c.writtenMB)
		}
		s, _, err := Planner{Config: c.config, Profile: GPUProfile,
			Options: config.Options{MaxSeqLen: c.context, MaxBatch: 1}}.Plan(Unlimited)
		if err != nil || s.KVPool() != c.kv+(1+64)*s.pageBytes || s.reserve*s.kept != 64 {
			t.Errorf("%s: a KV pool of %d bytes, %v, wants the guide's %d, a page, and 64 for a further user",
				c.config.Name, s.KVPool(), err, c.kv)
		}
		// The driver allocates blocks of 2 MiB.
		if over := float64(s.WeightBytes())/float64(2*exact) - 1; over < 0 || over > 0.16 {
			t.Errorf("%s: weights take %d bytes for %d parameters", c.config.Name, s.WeightBytes(), exact)
		}
	}
}

// Each matrix counts in its own format, as a GPU packs it; a format that it cannot pack is refused by the tensor's
// name.
func TestPlanCountsFormats(t *testing.T) {
	const down = "model.layers.3.mlp.down_proj.weight"
	formats := map[string]kernels.DType{}
	for _, s := range phi.Tensors() {
		formats[s.Name] = kernels.Q8_0
	}
	formats[down] = kernels.Q6_K
	p := Planner{Config: phi, Profile: GPUProfile, Formats: formats, AnyFormat: true}
	p.Profile.block = 1
	s := p.size(4096, 1, Unlimited)
	want := 31*kernels.PackedBytes(kernels.Q8_0, 3072, 8192) + kernels.PackedBytes(kernels.Q6_K, 3072, 8192) +
		32*2*kernels.PackedBytes(kernels.Q8_0, 8192, 3072)
	for _, w := range s.weights {
		if w.kind == model.FeedForwardTensor && (w.bytes != want || w.bytes > 2*w.parameters*5/8) {
			t.Errorf("%d bytes for %d parameters, wants %d", w.bytes, w.parameters, want)
		}
	}
	narrow := phi
	narrow.Inner = 8192 + 128 // no whole blocks of Q6_K
	p = Planner{Config: narrow, Profile: GPUProfile, Formats: map[string]kernels.DType{down: kernels.Q6_K}}
	if _, _, err := p.Plan(Unlimited); !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), down) ||
		!strings.Contains(err.Error(), "--device host") {
		t.Error(err)
	}
	p = Planner{Config: phi, Profile: GPUProfile, Ordered: down}
	if _, _, err := p.Plan(Unlimited); !errors.Is(err, device.ErrBadShape) || !strings.Contains(err.Error(), down) ||
		!strings.Contains(err.Error(), "desc_act") {
		t.Errorf("activation order: %v", err)
	}
	p.Profile = HostProfile
	if _, _, err := p.Plan(Unlimited); err != nil {
		t.Error(err)
	}
}

// Formats that a GPU cannot multiply in one op are refused by the tensors' names.
func TestFormatsThatOneOpMixes(t *testing.T) {
	for _, test := range []struct {
		tensor string
		format kernels.DType
		fits   bool
	}{
		{"self_attn.v_proj", kernels.Q5_0, true}, {"self_attn.v_proj", kernels.F32, false},
		{"self_attn.o_proj", kernels.F16, true}, {"mlp.up_proj", kernels.Q5_0, false}, {"mlp.down_proj", kernels.Q5_0, true},
	} {
		formats := map[string]kernels.DType{}
		for _, s := range qwen.Tensors() {
			formats[s.Name] = kernels.Q8_0
		}
		formats["model.layers.3."+test.tensor+".weight"] = test.format
		_, _, err := Planner{Config: qwen, Profile: GPUProfile, Formats: formats}.Plan(Unlimited)
		if (err == nil) != test.fits || err != nil && (!strings.Contains(err.Error(), "model.layers.3.") ||
			!strings.Contains(err.Error(), "--device host") || strings.Contains(err.Error(), device.ErrBadShape.Error())) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// The gap is that of the device, or the one that is asked for.
func TestPlanGap(t *testing.T) {
	for _, test := range []struct {
		profile     Profile
		asked, want time.Duration
	}{
		{GPUProfile, config.AutoTokenGap, 20 * time.Millisecond}, {HostProfile, config.AutoTokenGap, 50 * time.Millisecond},
		{GPUProfile, 0, 0}, {HostProfile, time.Second, time.Second},
	} {
		p := Planner{Config: qwen3MoE, Profile: test.profile, Options: config.Options{TokenGap: test.asked}}
		if got := p.engineOptions(64, 2).Gap; got != test.want {
			t.Errorf("%s, %v: a gap of %v, wants %v", test.profile.kind, test.asked, got, test.want)
		}
	}
}

// Only products of a GPU have workspaces.
func TestPlanWorkspaces(t *testing.T) {
	for _, profile := range []Profile{HostProfile, GPUProfile, GPUProfile.On(9, 0)} {
		o := Planner{Profile: profile, Config: qwen3MoE}.engineOptions(1024, 8)
		if want := profile.kind == "host"; o.NoWorkspaces != want || o.Geometry().NoWorkspaces != want {
			t.Errorf("%s: %v and %v, wants %v", profile.kind, o.NoWorkspaces, o.Geometry().NoWorkspaces, want)
		}
	}
}

// A plan never exceeds its budget, and a larger budget never serves less.
func TestPlanKeepsTheBudget(t *testing.T) {
	for _, c := range []model.Config{qwen, phi} {
		p := Planner{Config: c, Profile: GPUProfile, Options: config.Options{MaxGraphs: 1024}}
		served := false
		for budget := int64(1 << 28); budget < 1<<40; budget += budget / 7 {
			s, o, err := p.Plan(budget)
			if err == nil && (s.Total() > budget || o.Pages < int(s.longest) || int64(o.Pages) != s.Pages ||
				o.GraphMemory != s.Graphs) {
				t.Errorf("%s in %s: %+v takes %s", c.Name, Size(budget), o, Size(s.Total()))
			}
			if served && err != nil {
				t.Errorf("%s fits a smaller budget, but not %s", c.Name, Size(budget))
			}
			served = err == nil
		}
		if !served {
			t.Errorf("%s never fits", c.Name)
		}
	}
}

// The default batch is as large as the KV pool has 256 tokens for each sequence, and the flag wins.
func TestDefaultBatch(t *testing.T) {
	llama := model.Config{Name: "llama", Vocab: 32000, Hidden: 4096, Inner: 11008, Layers: 32, Heads: 32, KVHeads: 32,
		HeadDim: 128, Context: 4096, RMSNormEps: 1e-5, RoPETheta: 1e4}
	for _, c := range []struct {
		config  model.Config
		profile Profile
		gib     int64
		options config.Options
		want    int
	}{
		{llama, GPUProfile, 80, config.Options{}, 256},
		{llama, GPUProfile, 40, config.Options{}, 192},
		{llama, GPUProfile, 24, config.Options{}, 64},
		{llama, GPUProfile, 24, config.Options{MaxBatch: 300}, 300},
		{llama, GPUProfile, 24, config.Options{MaxSeqLen: 64}, 256}, // four pages hold a whole sequence
		{qwen, GPUProfile, 8, config.Options{}, 256},
		{qwen, HostProfile, 80, config.Options{}, 64},
	} {
		c.options.MaxGraphs = 1024
		_, o, err := Planner{Config: c.config, Profile: c.profile, Options: c.options}.Plan(c.gib << 30)
		if err != nil || o.MaxBatch != c.want {
			t.Errorf("%s on %s in %d GiB, %+v: a batch of %d, %v, wants %d", c.config.Name, c.profile.kind, c.gib, c.options,
				o.MaxBatch, err, c.want)
		}
	}
}

// The reserve leaves one user a sequence of the longest context, and seven eighths of the
// pages or as many as its batch can use. With enough memory it has all its pages.
func TestReserveLeavesOneUserItsOwn(t *testing.T) {
	for _, c := range []model.Config{qwen, phi} {
		kept := int64(-1)
		for budget := int64(1 << 30); budget < 1<<40; budget += budget / 7 {
			for _, batch := range []int{1, 5, 64, 200} {
				s, o, err := Planner{Config: c, Profile: GPUProfile, Options: config.Options{MaxBatch: batch}}.Plan(budget)
				if err != nil {
					continue
				}
				own := s.Pages - s.reserve*s.kept
				if own < s.longest || own < min(s.Pages-s.Pages/8, s.longest*int64(batch)) ||
					int64(o.ReservePages) != s.kept || s.kept < 0 {
					t.Errorf("%s in %s: of %d pages one user has %d, each sequence up to %d: %+v",
						c.Name, Size(budget), s.Pages, own, s.longest, o)
				}
				if want := min(4, max(1, batch/16)); o.Reserve != want {
					t.Errorf("%d slots beside %d, wants %d", o.Reserve, batch, want)
				}
				kept = s.kept
			}
		}
		if kept != 1024/pageTokens {
			t.Errorf("%s: with enough memory a slot has %d pages", c.Name, kept)
		}
	}
}

func TestCacheScope(t *testing.T) {
	for name, want := range map[string]engine.CacheScope{
		"": engine.ScopeUser, "user": engine.ScopeUser, "all": engine.ScopeAll, "off": engine.ScopeOff,
	} {
		_, o, err := Planner{Config: qwen, Profile: GPUProfile, Options: config.Options{CacheScope: name}}.Plan(Unlimited)
		if err != nil || o.CacheScope != want {
			t.Errorf("%q is the scope %v, %v", name, o.CacheScope, err)
		}
	}
}

// The setting names the engine's drafter, whose verify passes have their graphs in the plan.
func TestDrafts(t *testing.T) {
	planned := func(o config.Options) (Sizes, engine.Options) {
		o.MaxGraphs = 1024
		s, e, err := Planner{Config: qwen, Profile: GPUProfile, Options: o}.Plan(Unlimited)
		if err != nil {
			t.Fatal(err)
		}
		return s, e
	}
	without, off := planned(config.Options{Draft: "off", DraftTokens: 7})
	with, lookup := planned(config.Options{Draft: "lookup", DraftTokens: 5})
	if off.Draft != engine.DraftOff || lookup.Draft != engine.DraftLookup || lookup.DraftTokens != 5 {
		t.Errorf("off is %v, lookup %v with %d tokens", off.Draft, lookup.Draft, lookup.DraftTokens)
	}
	if more := with.StartGraphs - without.StartGraphs; more != 5 {
		t.Errorf("with 5 drafts %d more graphs are captured at start", more)
	}
	if _, given := planned(config.Options{Draft: "given", DraftTokens: 7}); given.Draft != engine.DraftGiven {
		t.Errorf("given is %v", given.Draft)
	}
	for _, name := range []string{"auto", "always"} {
		_, o := planned(config.Options{Draft: "lookup", DraftTokens: 7, DraftPlan: name})
		if o.DraftAlways != (name == "always") {
			t.Errorf("--draft-plan %s: always is %v", name, o.DraftAlways)
		}
	}
}

// By default a GPU looks up what it guesses, and a processor guesses nothing.
func TestDefaultDrafter(t *testing.T) {
	for want, profile := range map[engine.DraftKind]Profile{engine.DraftLookup: GPUProfile, engine.DraftOff: HostProfile} {
		o := config.Options{Draft: config.DraftAuto, DraftTokens: 7, MaxGraphs: 1024}
		_, e, err := Planner{Config: qwen, Profile: profile, Options: o}.Plan(Unlimited)
		if err != nil || e.Draft != want {
			t.Errorf("%s: the drafter is %v, %v, wants %v", profile.kind, e.Draft, err, want)
		}
	}
}

// The advice names a setting to lower, and following it helps.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		budget int64
		opts   config.Options
		want   string
		taken  config.Options
	}{
		{1960 << 20, config.Options{}, "lower --max-seq-len to ", config.Options{}},
		{1860 << 20, config.Options{MaxBatch: 512}, "lower --max-batch to 1 and --max-seq-len to ",
			config.Options{MaxBatch: 1}},
		{3 << 30, config.Options{GraphMemory: 4 << 30}, "lower --graph-memory",
			config.Options{GraphMemory: 1 << 28, MaxSeqLen: 64}},
		{1 << 30, config.Options{}, "smaller model: the weights alone take 1.072 GiB", config.Options{}},
	} {
		c.opts.MaxGraphs, c.taken.MaxGraphs = 1024, 1024
		p := Planner{Config: qwen, Profile: GPUProfile, Options: c.opts}
		_, _, err := p.Plan(c.budget)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v in %s: %v, wants %q", c.opts, Size(c.budget), err, c.want)
			continue
		}
		p.Options = c.taken
		if _, after, found := strings.Cut(err.Error(), "--max-seq-len to "); found {
			p.Options.MaxSeqLen = digits(after)
		} else if p.Options.MaxSeqLen == 0 {
			continue
		}
		if _, _, err := p.Plan(c.budget); err != nil {
			t.Errorf("%+v in %s: the advice does not help: %v", p.Options, Size(c.budget), err)
		}
		p.Options.MaxSeqLen++
		if _, _, err := p.Plan(c.budget); err == nil && strings.Contains(c.want, "max-seq-len") {
			t.Errorf("%+v in %s: fits too: the advice is not the most", p.Options, Size(c.budget))
		}
	}
}

// digits returns the number that s consists of.
func digits(s string) (n int) {
	for _, r := range s {
		n = 10*n + int(r-'0')
	}
	return n
}

// A model that the GPU's ops cannot compute is refused, and the error names the dimension.
func TestDimensionsThatAGPUCannotHave(t *testing.T) {
	head, width, wide, pages, shared := qwen, qwen, qwen, qwen, qwen
	head.HeadDim, width.Hidden = 80, 66
	wide.Wide = &model.Wide{Layers: make([]bool, wide.Layers), HeadDim: 544, KVHeads: wide.KVHeads}
	wide.Wide.Layers[1] = true
	pages.Wide = &model.Wide{Layers: wide.Wide.Layers, HeadDim: 96, KVHeads: pages.KVHeads}
	shared.SharedKV = &model.SharedKV{Layers: 1, Inner: 72}
	for want, odd := range map[string]model.Config{"head_dim 80": head, "hidden_size 66": width, "head_dim 544": wide,
		"each must divide the largest": pages,
		"intermediate_size 72":         shared} {
		for _, profile := range []Profile{HostProfile, GPUProfile} {
			_, _, err := Planner{Config: odd, Profile: profile, Options: config.Options{}}.Plan(Unlimited)
			advises := err != nil && strings.Contains(err.Error(), want) &&
				strings.Contains(err.Error(), "--device host")
			if advises != profile.Packed || err != nil && !profile.Packed {
				t.Errorf("%s: %v", profile.kind, err)
			}
		}
	}
}

// Weights are read beside the step memory and the graphs of the start. Without graphs to come that have more room, the
// pool leaves it to them.
func TestPlanLoadsBesideStepMemory(t *testing.T) {
	for _, graphs := range []int{0, 64} {
		p := Planner{Config: qwen, Profile: GPUProfile, Options: config.Options{MaxGraphs: graphs}}
		for budget := int64(2 << 30); budget < 3<<30; budget += 100 << 20 {
			s := p.size(8192, 8, budget)
			if loading := s.AtStart() + kernels.StagingBytes; s.Pages > 0 && (loading > budget || s.Total() < loading || s.Total() > budget) {
				t.Errorf("%d graphs in %s: %s while weights are read, at most %s planned", graphs, Size(budget), Size(loading),
					Size(s.Total()))
			}
		}
	}
}
