package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// newRanks returns a device of n simulated ranks with random delays of their own.
func newRanks(t testing.TB, n int) *device.HostRanks {
	t.Helper()
	dev, err := device.NewHostRanks(n, 0, func(rank int) device.HostOptions {
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(uint64(rank), uint64(n)))
		return device.HostOptions{Workers: 1, Delay: func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(r.IntN(20)) * time.Microsecond
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	return dev
}

// runOnRanks is run on n ranks. It checks that all ranks have the same logits.
func runOnRanks(t *testing.T, c model.Config, tensors model.Tensors, tokens []int32, n int) (all [][]float32) {
	t.Helper()
	dev := newRanks(t, n)
	c.Ranks = n
	m, err := model.Load(dev, c, tensors, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, dev, m, 128, kernels.F32)
	step := func() {
		all = append(all, r.logits())
		for rank, h := range dev.Hosts() {
			if own := h.Float32(r.memory.Logits()); !slices.Equal(own, all[len(all)-1]) {
				t.Errorf("rank %d of %d has other logits than the first", rank, n)
			}
		}
	}
	r.prompt(tokens, 128)
	step()
	for range 3 {
		r.decode()
		step()
	}
	r.free()
	if err := m.Free(dev); err != nil {
		t.Error(err)
	}
	return all
}

// Every family gives the same bits on several ranks as on one. Those with two query heads are divided between two; the
// others have heads, KV heads and widths that divide evenly, and some that do not.
func TestRanksGiveTheSameBits(t *testing.T) {
	for _, name := range families {
		c, w := checkpoint(t, name)
		tokens := loadGolden(t, "testdata/"+name, 5, c.Vocab)[2].Tokens
		want := run(t, c, w, tokens)
		for _, n := range []int{2, 4, 8} {
			if c.CheckRanks(n) != nil {
				continue
			}
			t.Run(fmt.Sprint(name, " on ", n), func(t *testing.T) {
				for i, logits := range runOnRanks(t, c, w, tokens, n) {
					if !slices.Equal(logits, want[i]) {
						t.Fatalf("logits %d differ by %.1e", i, relativeError(logits, want[i]))
					}
				}
			})
		}
	}
}

// A plan counts the rows that a rank loads of each matrix, in every family: those of a part, and all of what each rank
// has whole, as latent attention.
func TestARankLoadsTheRowsThatAPlanCounts(t *testing.T) {
	for _, name := range families {
		c, w := checkpoint(t, name)
		formats := c.Formats(w)
		for _, n := range []int{2, 4, 8} {
			if c.CheckRanks(n) != nil {
				continue
			}
			c.Ranks = n
			var want int64
			for _, s := range c.Tensors() {
				for _, rows := range s.Weights() {
					if s.Matrix() {
						want += int64(c.RankRows(s, rows)) * formats[s.Name].Bytes(int64(s.Shape[1]))
					}
				}
				if s.Kind == model.EmbeddingTensor && c.TiedHead { // whose part is the head
					want += int64(kernels.PartOf(c.Vocab, n)) * formats[s.Name].Bytes(int64(s.Shape[1]))
				}
			}
			dev := newRanks(t, n)
			m, err := model.Load(dev, c, w, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.WeightBytes(); got != want {
				t.Errorf("%s on %d: a rank has %d bytes, the plan counts %d", name, n, got, want)
			}
			if err := m.Free(dev); err != nil {
				t.Error(err)
			}
		}
	}
}

// Stacks of experts that one rank reads in place are counted, since ranks copy them. Experts that come one by one are
// counted as converted, for any number of ranks.
func TestStackedExperts(t *testing.T) {
	c, single := checkpoint(t, "qwen3-moe")
	want := int64(0)
	for _, s := range c.Tensors() {
		if s.Kind == model.ExpertTensor && s.Matrix() {
			n := int64(2)
			for _, d := range s.Shape {
				n *= int64(d)
			}
			want += n
		}
	}
	if got := c.Stacked(zeros{c, ""}); got != want || want == 0 {
		t.Errorf("%d bytes of stacks, wants %d", got, want)
	}
	if got := c.Stacked(single); got != 0 {
		t.Errorf("%d bytes of stacks that are made of experts one by one", got)
	}
	if c, w := checkpoint(t, "llama-2"); c.Stacked(w) != 0 {
		t.Error("a dense model has stacks")
	}
}
