package model_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// company is a model in step memory of several slots.
type company struct {
	t      *testing.T
	dev    device.Device
	m      *model.Model
	memory *model.StepMemory
	stream device.Stream
	next   uint64
}

const companySlots, companyPages, companyRows = 4, 6, 64

func newCompany(t *testing.T, dev device.Device, m *model.Model) *company {
	t.Helper()
	memory, err := m.NewStepMemory(dev, model.Geometry{MaxRows: companyRows, Slots: companySlots, MaxSamples: companySlots,
		Context: 16 * companyPages, PageTokens: 16, Pages: companySlots * companyPages, RingSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	c := &company{t: t, dev: dev, m: m, memory: memory, stream: stream}
	t.Cleanup(func() {
		if err := errors.Join(stream.Destroy(), memory.Free(dev)); err != nil {
			t.Error(err)
		}
	})
	var s kernels.Step
	for slot := range int32(companySlots) {
		s.Inits = append(s.Inits, kernels.Init{Slot: slot, Generation: 1, Sampling: kernels.Sampling{Temperature: 0.8,
			TopP: 0.9, RepeatPenalty: 1.1, Seed: uint64(slot), Logprobs: 5}})
		for i := range int32(companyPages) {
			s.Pages = append(s.Pages, kernels.PageEntry{Slot: slot, Index: i, Page: 1 + slot*companyPages + i})
		}
	}
	c.step(s, model.Shape{Rows: 1})
	return c
}

// step runs a step over poisoned activations, and returns the logits and records of its samples.
func (c *company) step(s kernels.Step, sh model.Shape) (results []string) {
	c.t.Helper()
	for _, b := range c.memory.Activations() {
		if err := c.stream.Launch(kernels.Fill{Data: b, Value: kernels.Poison}); err != nil {
			c.t.Fatal(err)
		}
	}
	s.Number = c.next
	c.next++
	if err := c.memory.Write(&s); err != nil {
		c.t.Fatal(err)
	}
	if err := errors.Join(c.m.Forward(c.stream, c.memory, sh), c.stream.Synchronize()); err != nil {
		c.t.Fatal(err)
	}
	logits := c.read(c.memory.Logits())
	for i := range s.Samples {
		var r kernels.Record
		c.memory.Record(s.Number, i, &r)
		row := 4 * c.m.Config.Vocab
		results = append(results, fmt.Sprintf("%d %d %x %v %x", r.Slot, r.Token, r.Logprob, r.Top, logits[i*row:][:row]))
	}
	return results
}

func (c *company) read(b device.Buffer) []byte {
	c.t.Helper()
	raw := make([]byte, b.Bytes())
	if err := c.dev.Read(raw, b); err != nil {
		c.t.Fatal(err)
	}
	return raw
}

// pages returns the keys and values of all sequences.
func (c *company) pages() []byte {
	return c.read(c.memory.KV.Data)[c.memory.KV.PageBytes():]
}

// prompt returns rows of a slot's prompt.
func (c *company) prompt(slot, from, to int32) (rows []kernels.Row) {
	for p := from; p < to; p++ {
		rows = append(rows, kernels.Row{Slot: slot, Position: p, Token: (slot*31 + p*7 + 3) % int32(c.m.Config.Vocab)})
	}
	return rows
}

// begin computes prompts of three sequences, of which the third one's goes on.
func (c *company) begin() {
	c.t.Helper()
	rows := append(append(c.prompt(0, 0, 29), c.prompt(1, 0, 5)...), c.prompt(2, 0, 21)...)
	c.step(kernels.Step{Rows: rows, Samples: []int32{28, 33}},
		model.Shape{Class: kernels.Prefill, Rows: len(rows) + 2, Samples: companySlots})
}

// generated is the row of a sequence's next token.
func generated(slot int32) kernels.Row {
	return kernels.Row{Slot: slot, Position: kernels.FromDevice, Token: kernels.FromDevice}
}

// A mixed pass gives what a decode pass and a prefill pass give, bit for bit: logits, tokens, log-probabilities, keys
// and values. It may have padding after the rows of either.
func TestAMixedPassGivesTheBitsOfTwo(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpoint(t, name)
			m, err := model.Load(h, c, w, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := m.Free(h); err != nil {
					t.Error(err)
				}
			})
			mixedEqualsTwo(t, h, m)
		})
	}
}

func mixedEqualsTwo(t *testing.T, dev device.Device, m *model.Model) {
	two, one := newCompany(t, dev, m), newCompany(t, dev, m)
	two.begin()
	one.begin()
	for at := int32(0); at < 2; at++ {
		decode := []kernels.Row{generated(1), generated(0)}
		prompts := append(two.prompt(2, 21+13*at, 34+13*at), two.prompt(3, 18*at, 18*at+18)...)
		var ends []int32
		if at == 1 {
			ends = []int32{int32(len(prompts) - 1)}
		}
		want := two.step(kernels.Step{Rows: decode, Samples: []int32{0, 1}}, model.Shape{Rows: 2, Samples: 2})
		want = append(want, two.step(kernels.Step{Rows: prompts, Samples: ends},
			model.Shape{Class: kernels.Prefill, Rows: len(prompts), Samples: companySlots})...)

		rows, samples := decode, []int32{0, 1}
		for range 2 * at { // padding of the generated rows
			rows = append(rows, kernels.Row{Slot: kernels.NoSlot})
		}
		shape := model.Shape{Class: kernels.Prefill, Generated: len(rows), Samples: companySlots}
		for _, end := range ends {
			samples = append(samples, int32(len(rows))+end)
		}
		rows = append(rows, prompts...)
		shape.Rows = len(rows) + 3*int(at) // padding of the prompts
		got := one.step(kernels.Step{Rows: rows, Samples: samples}, shape)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("step %d, result %d:\n    got %.200s\n  wants %.200s", at, i, got[i], want[i])
			}
		}
		if !bytes.Equal(one.pages(), two.pages()) {
			t.Errorf("step %d: other keys or values", at)
		}
	}
}

// The ops of a mixed pass know its generated rows up to the last attention; those after it, of the decode class, have
// sampled rows alone.
func TestOpsKnowTheGeneratedRows(t *testing.T) {
	h, m := embedded(t)
	memory := newCompany(t, h, m).memory
	for _, want := range []int{0, 5} {
		var l launches
		if err := m.Forward(&l, memory, model.Shape{Class: kernels.Prefill, Rows: 12, Samples: 3, Generated: want}); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		check := func(op device.Op, class kernels.Class, generated kernels.Generated) {
			if class == kernels.Prefill {
				seen[op.Kernel()]++
			}
			if int(generated) != want && class == kernels.Prefill || class == kernels.Decode && generated != 0 {
				t.Errorf("%s of class %s has %d generated rows, the pass %d", op.Kernel(), class, generated, want)
			}
			if err := op.Check(); err != nil {
				t.Error(err)
			}
		}
		for _, op := range l.ops {
			switch o := op.(type) {
			case kernels.QKV:
				check(o, o.Class, o.Generated)
			case kernels.Attend:
				check(o, o.Class, o.Generated)
			case kernels.Projection:
				check(o, o.Class, o.Generated)
			case kernels.GateUp:
				check(o, o.Class, o.Generated)
			}
		}
		if n := m.Config.Layers; seen["qkv"] != n || seen["attend"] != n || len(seen) != 5 {
			t.Errorf("of %d layers: %v", n, seen)
		}
	}
}

// On the host each running sequence has a row, and prompts get the rows that are left of the pass, a chunk at most. On a GPU
// both numbers are those of its kernels, and 0 for a model that they do not serve.
func TestMixedRows(t *testing.T) {
	dense := model.Config{Hidden: 4096, Inner: 11008, Heads: 32, KVHeads: 32, HeadDim: 128}
	narrow, biased, sparse := dense, dense, dense
	narrow.Hidden = 896
	biased.OutputBias = true
	sparse.Experts = &model.Experts{}
	gpu := model.MixedOn{GPU: true, Hopper: true, Chunk: 416, MaxRows: 1536,
		Formats: map[string]kernels.DType{"a": kernels.BF16, "b": kernels.F32}}
	ampere, small, quantised, types := gpu, gpu, gpu, gpu
	types.Formats = map[string]kernels.DType{"a": kernels.BF16, "b": kernels.F16}
	ampere.Hopper = false
	small.MaxRows = kernels.LeastMixed - 1
	quantised.Formats = map[string]kernels.DType{"a": kernels.BF16, "b": kernels.Q8_0}
	ranks, embeds := dense, dense
	ranks.Ranks = 2
	embeds.Embedding = &model.Embedding{}
	for _, c := range []struct {
		name       string
		config     model.Config
		on         model.MixedOn
		n          int
		rows, most int
	}{
		{"a chunk", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 4, 4, 64},
		{"the rest", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 30, 30, 42},
		{"half", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 36, 36, 36},
		{"less than half", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 37, 0, 0},
		{"less than half, a whole chunk", dense, model.MixedOn{Chunk: 32, MaxRows: 72}, 40, 40, 32},
		{"no room", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 72, 0, 0},
		{"nobody", dense, model.MixedOn{Chunk: 64, MaxRows: 72}, 0, 0, 0},
		{"a GPU", dense, gpu, 4, 16, 224},
		{"more on a GPU", dense, gpu, 17, 32, 192},
		{"too many on a GPU", dense, gpu, 33, 0, 0},
		{"another GPU", dense, ampere, 4, 0, 0},
		{"too little memory", dense, small, 4, 0, 0},
		{"quantised", dense, quantised, 4, 0, 0},
		{"two types", dense, types, 4, 0, 0},
		{"narrow", narrow, gpu, 4, 0, 0},
		{"a bias", biased, gpu, 4, 0, 0},
		{"experts", sparse, gpu, 4, 0, 0},
		{"ranks", ranks, model.MixedOn{Chunk: 64, MaxRows: 72}, 4, 0, 0},
		{"embeddings", embeds, model.MixedOn{Chunk: 64, MaxRows: 72}, 4, 0, 0},
	} {
		if rows, most := c.config.MixedRows(c.on, c.n); rows != c.rows || most != c.most {
			t.Errorf("%s: %d generated rows and %d of prompts, wants %d and %d", c.name, rows, most, c.rows, c.most)
		}
	}
}
