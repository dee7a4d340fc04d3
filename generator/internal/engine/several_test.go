package engine

import (
	"reflect"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// A step's key says whether several prompts end in it. A prompt that goes on after the step does not count.
func TestKeyOfSeveralPrompts(t *testing.T) {
	b := scheduler.Batch{Prefill: true, Step: kernels.Step{Rows: make([]kernels.Row, 5)}}
	for ends, want := range []graphs.Key{graphs.Prefill(5), graphs.Prefill(5), graphs.Prefill(5).OfSeveral(),
		graphs.Prefill(5).OfSeveral()} {
		b.Step.Samples = make([]int32, ends)
		if got := key(&b); got != want {
			t.Errorf("%d prompts end: %s, wants %s", ends, got, want)
		}
	}
}

// Whole steps and multiples of 16 tokens are captured for several prompts too, if several can run.
func TestLatticeOfSeveralPrompts(t *testing.T) {
	of := func(change func(*Options)) (tokens []int) {
		o := defaults()
		o.Chunk, o.MaxBatch, o.Precapture = 40, 4, nil
		change(&o)
		for _, k := range o.Lattice() {
			if k == k.OfSeveral() {
				tokens = append(tokens, k.Tokens())
			}
		}
		return tokens
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   []int
	}{
		"as it is":     {func(*Options) {}, []int{40, 32, 16}},
		"long steps":   {func(o *Options) { o.LongChunk, o.Precapture = 70, []int{8, 40, 70} }, []int{70, 40}},
		"embeddings":   {func(o *Options) { o.Embeddings = true }, []int{40, 32, 16}},
		"one sequence": {func(o *Options) { o.MaxBatch = 1 }, nil},
	} {
		if got := of(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, wants %v", name, got, c.want)
		}
	}
}

// Prompts that end in one step give the tokens that each gives alone, and no step is launched op by op.
func TestSeveralPromptsInOneStep(t *testing.T) {
	o := nano()
	o.Chunk, o.Precapture, o.NoRoller, o.MaxGraphs, o.GraphMemory = 32, nil, true, 200, 1<<30
	prompts := [][]int32{{1, 2, 3}, {4, 5, 6, 7, 8}, {9}, {10, 11}}
	run := func(together bool) (answers [][]int32) {
		b := built(t, device.HostOptions{}, o, nil)
		if !together {
			b.run()
		}
		var sinks []*sink
		for _, p := range prompts {
			s, _ := b.submit(Request{Tokens: p, MaxTokens: 5, IgnoreEOS: true})
			if sinks = append(sinks, s); !together {
				s.must(t)
			}
		}
		if together {
			b.run()
		}
		for _, s := range sinks {
			answers = append(answers, ids(s.must(t).tokens))
		}
		got, prefill := b.Stats(), uint64(len(prompts))
		if together {
			prefill = 1 // 11 tokens, on the graph of 16 of several
		}
		if got.Steps.Prefill != prefill || got.Graphs.Eager != 0 || got.Graphs.Padded != 0 != together {
			t.Errorf("together: %t: %+v, %+v", together, got.Steps, got.Graphs)
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		return answers
	}
	if alone, together := run(false), run(true); !reflect.DeepEqual(together, alone) {
		t.Errorf("together %v, alone %v", together, alone)
	}
}
