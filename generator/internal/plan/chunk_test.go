package plan

import (
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
)

// A step has at most the tokens of all sequences, and no larger graph is captured.
func TestPlanChunk(t *testing.T) {
	c := model.Config{Layers: 2, Hidden: 64, Inner: 128, Heads: 2, KVHeads: 1, HeadDim: 32, Vocab: 100, Context: 4096}
	most := 0
	for _, test := range []struct{ batch, context, want int }{{1, 16, 16}, {3, 20, 60}, {2, 4096, 416}} {
		s, o, err := Planner{Config: c, Profile: GPUProfile,
			Options: config.Options{MaxBatch: test.batch, MaxSeqLen: test.context, MaxGraphs: 1000}}.Plan(1 << 40)
		if err != nil || o.Chunk != test.want || s.StartGraphs <= most {
			t.Errorf("%d sequences of %d tokens: steps of %d, %d graphs, %v, wants %d",
				test.batch, test.context, o.Chunk, s.StartGraphs, err, test.want)
		}
		most = s.StartGraphs
	}
}

// On a GPU a step of a model with experts, or for embeddings, has more, and on Hopper one of a dense model for embeddings
// in 16 bits.
func TestPlanLargeChunk(t *testing.T) {
	hopper, ada := GPUProfile.On(9, 0), GPUProfile.On(8, 9)
	for _, test := range []struct {
		profile Profile
		c       model.Config
		format  kernels.DType
		want    int
	}{{GPUProfile, model.Config{}, kernels.BF16, 416}, {GPUProfile, model.Config{Experts: &model.Experts{}}, kernels.BF16, 832},
		{GPUProfile, model.Config{Embedding: &model.Embedding{}}, kernels.BF16, 832},
		{HostProfile, model.Config{Experts: &model.Experts{}}, kernels.BF16, 64}, {ada, model.Config{}, kernels.F16, 416},
		{hopper, model.Config{}, kernels.F16, 416}, {hopper, model.Config{}, kernels.Q4_0, 416},
		{hopper, model.Config{Embedding: &model.Embedding{}}, kernels.Q4_0, 832},
		{hopper, model.Config{Embedding: &model.Embedding{}}, kernels.BF16, hopperChunk},
		{hopper, model.Config{Embedding: &model.Embedding{}}, kernels.F32, hopperChunk}, // packed as bfloat16
		{hopper, model.Config{Embedding: &model.Embedding{}}, kernels.F16, 832},
		{hopper, model.Config{Embedding: &model.Embedding{}, Ranks: 2}, kernels.BF16, hopperChunk},
		{hopper, model.Config{Experts: &model.Experts{}}, kernels.BF16, 832},
		{hopper, model.Config{Latent: &model.Latent{}}, kernels.BF16, 416}} {
		p := Planner{Config: test.c, Profile: test.profile, Formats: map[string]kernels.DType{"a": kernels.BF16, "b": test.format}}
		if got := p.chunk(4096, 2); got != test.want {
			t.Errorf("%s, %v in %v: %d, wants %d", test.profile.kind, test.c, test.format, got, test.want)
		}
	}
}

// A prompt that is alone has steps of more rows on Hopper, in a dense model in 16 bits that generates, if a prompt of the
// context has so many tokens; on several GPUs as on one. No graph of them is captured at start.
func TestPlanLongChunk(t *testing.T) {
	hopper := GPUProfile.On(9, 0)
	for _, test := range []struct {
		profile Profile
		c       model.Config
		format  kernels.DType
		context int
		want    int
	}{{hopper, model.Config{}, kernels.BF16, 4096, hopperChunk}, {hopper, model.Config{}, kernels.F16, 1537, hopperChunk},
		{hopper, model.Config{}, kernels.F16, 1536, hopperChunk / 2}, {hopper, model.Config{}, kernels.F16, 768, 0},
		{hopper, model.Config{}, kernels.Q4_0, 4096, 0}, {GPUProfile.On(8, 9), model.Config{}, kernels.BF16, 4096, 0},
		{HostProfile, model.Config{}, kernels.BF16, 4096, 0},
		{HostProfile, model.Config{Ranks: 2}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Ranks: 2}, kernels.BF16, 4096, hopperChunk},
		{hopper, model.Config{Ranks: 8}, kernels.F16, 1536, hopperChunk / 2},
		{GPUProfile, model.Config{Ranks: 2}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Ranks: 2}, kernels.Q4_0, 4096, 0},
		{hopper, model.Config{Ranks: 2, Experts: &model.Experts{}}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Ranks: 2, Latent: &model.Latent{}}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Experts: &model.Experts{}}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Latent: &model.Latent{}}, kernels.BF16, 4096, 0},
		{hopper, model.Config{Embedding: &model.Embedding{}}, kernels.BF16, 4096, 0}} {
		p := Planner{Config: test.c, Profile: test.profile, Formats: map[string]kernels.DType{"a": test.format}}
		o := p.engineOptions(test.context, 2)
		if o.LongChunk != test.want {
			t.Errorf("%s, %v in %v, %d tokens: %d, wants %d", test.profile.kind, test.c, test.format, test.context,
				o.LongChunk, test.want)
		}
		if k := o.Lattice()[0]; k.Tokens() > o.Chunk || o.Geometry().MaxRows < o.LongChunk {
			t.Errorf("a graph of %s at start, memory for %d rows", k, o.Geometry().MaxRows)
		}
	}
}

// Memory for long steps is counted, and left out where it costs too many pages or those of the longest sequence.
func TestPlanAffordsLongSteps(t *testing.T) {
	for _, test := range []struct {
		context, ranks       int
		least, most, between int64
	}{{4096, 0, 15 << 30, 40 << 30, 1 << 30}, {16384, 0, 22 << 30, 26 << 30, 128 << 20},
		{4096, 2, 8 << 30, 40 << 30, 1 << 30}, {16384, 2, 10 << 30, 16 << 30, 128 << 20}} {
		c := model.Config{Layers: 32, Hidden: 4096, Inner: 11008, Heads: 32, KVHeads: 32, HeadDim: 128, Vocab: 32000,
			Context: test.context, Ranks: test.ranks}
		p := Planner{Config: c, Profile: GPUProfile.On(9, 0), Options: config.Options{MaxBatch: 8, MaxGraphs: 100}}
		short := p
		short.Profile.longChunk = 0
		seen := map[int]bool{}
		for budget := test.least; budget < test.most; budget += test.between {
			s, o, err := p.Plan(budget)
			without, _, errWithout := short.Plan(budget)
			if (err == nil) != (errWithout == nil) {
				t.Errorf("%s: %v, without long steps %v", Size(budget), err, errWithout)
			}
			seen[o.LongChunk] = true
			switch takes := s.Arena - without.Arena; {
			case o.LongChunk == 0 && (takes != 0 || s.Pages != without.Pages):
				t.Errorf("%s: %s of step memory and %d pages without long steps, wants %s and %d", Size(budget),
					Size(s.Arena), s.Pages, Size(without.Arena), without.Pages)
			case o.LongChunk > 0 && (takes < 100<<20 || float64(s.Pages) < (1-longPart)*float64(without.Pages)):
				t.Errorf("%s: long steps take %s and leave %d of %d pages", Size(budget), Size(takes), s.Pages,
					without.Pages)
			}
		}
		if !seen[0] || !seen[hopperChunk] || len(seen) != 2 {
			t.Errorf("a context of %d on %d GPUs: long steps of %v tokens", test.context, test.ranks, seen)
		}
	}
}
