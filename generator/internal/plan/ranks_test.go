package plan

import (
	"errors"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
)

// shared is the shape of Llama-3.1-8B.
var shared = model.Config{Name: "llama", Vocab: 128256, Hidden: 4096, Inner: 14336, Layers: 32, Heads: 32, KVHeads: 8,
	HeadDim: 128, Context: 8192, RMSNormEps: 1e-5, RoPETheta: 500000}

// Each GPU has its part of the weights and of every page, and a whole embedding.
func TestPlanOfEachGPU(t *testing.T) {
	one := Planner{Config: shared, Profile: GPUProfile}.size(8192, 4, Unlimited)
	for _, n := range []int{2, 4, 8} {
		c := shared
		c.Ranks = n
		s := Planner{Config: c, Profile: GPUProfile}.size(8192, 4, Unlimited)
		embedding := 2 * int64(shared.Vocab) * int64(shared.Hidden)
		divided, want := s.WeightBytes()-embedding, (one.WeightBytes()-embedding)/int64(n)
		if divided < want || divided > want+want/20 {
			t.Errorf("%d GPUs: %d bytes of weights on each, wants %d", n, divided, want)
		}
		if s.pageBytes != one.pageBytes/int64(n) || s.hostPage != one.pageBytes {
			t.Errorf("%d GPUs: pages of %d and %d bytes, one has %d", n, s.pageBytes, s.hostPage, one.pageBytes)
		}
	}
}

// Simulated GPUs share the host's memory: the plan is that of all.
func TestPlanOfSimulatedGPUs(t *testing.T) {
	one := Planner{Config: shared, Profile: HostProfile}.size(1024, 2, Unlimited)
	c := shared
	c.Ranks = 2
	s, o, err := Planner{Config: c, Profile: HostProfile, Options: config.Options{MaxSeqLen: 1024, MaxBatch: 2,
		MaxGraphs: 10}}.Plan(1 << 40)
	if err != nil || s.pageBytes != one.pageBytes || s.Arena <= one.Arena || o.GraphMemory != s.Graphs/2 {
		t.Errorf("%v: pages of %d bytes, arena %d and %d, graphs %d of %d", err, s.pageBytes, s.Arena, one.Arena,
			o.GraphMemory, s.Graphs)
	}
}

// Memory for long steps is planned on each GPU: what one GPU has, and the rank's parts with the rows that exchanges
// fill.
func TestPlanCountsLongStepsOfSeveralGPUs(t *testing.T) {
	const context, batch = 8192, 4
	takes := func(ranks int) int64 {
		p := Planner{Config: shared, Profile: GPUProfile.On(9, 0)}
		p.Config.Ranks = ranks
		if long := p.longChunk(context, batch); long != hopperChunk {
			t.Errorf("%d GPUs: long steps of %d rows", ranks, long)
		}
		long := p.stepMemory(context, batch).taken()
		p.Profile.longChunk = 0
		return long - p.stepMemory(context, batch).taken()
	}
	one, c, rows := takes(0), shared, int64(hopperChunk-GPUProfile.chunk)
	for _, n := range []int{2, 4, 8} {
		parts := rows * 4 * int64((c.Heads*c.HeadDim+c.Inner+c.Hidden)/n+2*c.Hidden) // results, and those of all ranks
		queries := rows * 4 * int64(c.Heads*c.HeadDim) * int64(n-1) / int64(n)       // of other ranks' heads
		const blocks = 16 << 20                                                      // of buffers that are rounded up
		if got, want := takes(n), one+parts-queries; got < want-blocks || got > want+blocks {
			t.Errorf("%d GPUs: long steps take %s on each, wants %s", n, Size(got), Size(want))
		}
	}
}

// The graphs of several GPUs have the nodes of their exchanges: four in a layer, and two more.
func TestGraphsOfSeveralGPUsHaveExchanges(t *testing.T) {
	bytes := func(ranks int) (n int, bytes int64) {
		c := shared
		c.Ranks = ranks
		return Planner{Config: c, Profile: GPUProfile, Options: config.Options{MaxGraphs: 1024}}.startGraphs(8192, 4)
	}
	n, one := bytes(0)
	if _, two := bytes(2); two-one != int64((4*shared.Layers+2)*n)*GPUProfile.nodeBytes {
		t.Errorf("%d graphs take %d bytes on one GPU and %d on each of two", n, one, two)
	}
}

// A plan says that exchanges go through the host's memory.
func TestPlanSaysThatGPUsHaveNoPeers(t *testing.T) {
	c := shared
	c.Ranks = 2
	for link, want := range map[string]bool{"host": true, "auto": false} {
		r, err := NewReport(Planner{Config: c, Profile: GPUProfile, Options: config.Options{GPULink: link}}, "m", 1<<40)
		var text strings.Builder
		r.Print(&text)
		if err != nil || strings.Contains(text.String(), "exchanges, in host memory") != want {
			t.Errorf("%s: %v\n%s", link, err, text.String())
		}
	}
}

func TestGPUsThatDoNotDivideTheHeads(t *testing.T) {
	if c, err := Divide(shared, config.Options{GPUs: []int{0, 1, 2}}); !errors.Is(err, config.ErrConfig) ||
		!errors.Is(err, model.ErrUnsupported) || c.Ranks != 0 {
		t.Errorf("got %v", err)
	}
	for _, gpus := range [][]int{nil, {3}} {
		if c, err := Divide(shared, config.Options{GPUs: gpus}); err != nil || c.Ranks != 0 {
			t.Errorf("GPUs %v: %d ranks, %v", gpus, c.Ranks, err)
		}
	}
	if c, err := Divide(shared, config.Options{GPUs: []int{4, 2}}); err != nil || c.Ranks != 2 {
		t.Errorf("two GPUs: %d ranks, %v", c.Ranks, err)
	}
}

// Stacks of experts are read in place by one, and copied for several.
func TestWeightsOfSeveralGPUsOnTheHost(t *testing.T) {
	use := WeightUse{Resident: 100, Copied: 5, Stacked: 70}
	if got := use.On(1); got.Resident != 100 || got.Copied != 5 {
		t.Errorf("one: %+v", got)
	}
	if got := use.On(2); got.Resident != 30 || got.Copied != 75 {
		t.Errorf("two: %+v", got)
	}
	if got := use.On(2).On(2); got.Resident != 30 || got.Copied != 75 {
		t.Errorf("two, said twice: %+v", got)
	}
}
