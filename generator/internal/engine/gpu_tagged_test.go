//go:build cuda

package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// taggedConfigs are models whose passes of one row have tagged values: alone, with biases, with norms of heads of both
// sizes, in Q4_K, in Q8_0 with Q4_K where columns are a multiple of 256, with experts, and with those of gpt-oss.
func taggedConfigs() (all []model.Config) {
	for _, prepares := range []func(c *model.Config){func(*model.Config) {}, func(c *model.Config) { c.Bias = true },
		func(c *model.Config) { c.HeadNorms = true }, func(c *model.Config) { c.HeadNorms, c.HeadDim = true, 128 },
		func(c *model.Config) { c.Name = quantisedName },
		func(c *model.Config) { c.Name, c.Hidden = quantisedName, 320 },
		func(c *model.Config) {
			c.HeadNorms, c.Experts = true, &model.Experts{Count: 48, Used: 6, Inner: 192, Normalise: true}
		}, likeGptOss} {
		c := microConfig()
		c.Hidden, c.Inner, c.Heads, c.KVHeads, c.HeadDim, c.Layers, c.Vocab = 256, 1024, 8, 2, 64, 6, 1000
		prepares(&c)
		all = append(all, c)
	}
	return all
}

// likeGptOss makes a config one of sinks, windows, biases, and experts of MXFP4.
func likeGptOss(c *model.Config) {
	c.Name, c.Hidden, c.Bias, c.OutputBias, c.Sinks = microscaledName, 320, true, true, true
	c.Windows = []int{16, 0, 16, 0, 16, 0}
	c.Experts = &model.Experts{Count: 24, Used: 4, Inner: 576, Scoring: kernels.SoftmaxOfChosen, RouterBias: true, Bias: true,
		Limit: 7}
}

// taggedEngine returns an engine of such a model with these kernels.
func taggedEngine(t *testing.T, c model.Config, images gpu.Images) (*Engine, func()) {
	t.Helper()
	d, err := gpu.New(0, images)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(d, c, randomTensors{c}, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	o := defaults()
	o.MaxBatch, o.Pages, o.KVType, o.Precapture = 4, 64, kernels.BF16, []int{1, 3, 16}
	e, err := New(d, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return e, func() {
		if err := errors.Join(e.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// numberOfPass returns where the number of a pass of one row is.
func numberOfPass(t *testing.T, e *Engine) device.Buffer {
	t.Helper()
	var r recorder
	if err := e.model.Forward(&r, e.memory, model.Shape{Rows: 1, Samples: 1}); err != nil {
		t.Fatal(err)
	}
	for _, op := range r.ops {
		if embed, ok := op.(kernels.Embed); ok && !embed.Tags.Pass.IsZero() {
			return embed.Tags.Pass
		}
	}
	t.Fatal("the pass has no tagged values: this test tests nothing")
	return device.Buffer{}
}

// recorder is a stream that records launches.
type recorder struct {
	device.Stream
	ops []device.Op
}

func (r *recorder) Launch(op device.Op) error {
	r.ops = append(r.ops, op)
	return nil
}

// taggedDiffer compares steps of one sequence on the graph of one row with the same step beside padding, whose kernels
// wait for each other, and with an eager one. Passes of other keys come between, and the number of the pass wraps around.
// It returns how many differ.
func taggedDiffer(t *testing.T, e *Engine, times int) (n int) {
	t.Helper()
	number := numberOfPass(t, e)
	one, padded := &trial{e: e, key: graphs.Decode(1), size: 1}, &trial{e: e, key: graphs.Decode(2), size: 1}
	for i := range times {
		if i%8 == 3 {
			if err := one.poison([]device.Buffer{number}); err != nil { // another number, far from the last one
				t.Fatal(err)
			}
		}
		if i%8 == 5 {
			wraps := kernels.Fill{Data: number, Value: 1<<32 - 3*1024}
			if err := errors.Join(e.stream.Launch(wraps), e.stream.Synchronize()); err != nil {
				t.Fatal(err)
			}
		}
		for _, trial := range []*trial{padded, one} {
			switch err := trial.verify(); {
			case errors.Is(err, graphs.ErrDiffers):
				n++
			case err != nil:
				t.Fatal(err)
			}
		}
	}
	return n
}

// A step of one sequence has the bits that it has beside padding, whose kernels wait for each other: replayed and eager,
// over poisoned memory, between passes of other keys, and while the number of the pass wraps around.
func TestGPUTaggedPassesHaveTheBitsOfOthers(t *testing.T) {
	for i, c := range taggedConfigs() {
		e, done := taggedEngine(t, c, cuda.Kernels)
		if n := taggedDiffer(t, e, 100); n > 0 {
			t.Errorf("model %d: %d comparisons differ", i, n)
		}
		done()
	}
}

// The same with kernels that are delayed at random; kernels that take values without their numbers give others.
func TestGPUTaggedPassesLate(t *testing.T) {
	for i, c := range taggedConfigs() {
		e, done := taggedEngine(t, c, kernelsOf(t, "late"))
		if n := taggedDiffer(t, e, 20); n > 0 {
			t.Errorf("model %d: %d comparisons differ when kernels are late", i, n)
		}
		done()
		e, done = taggedEngine(t, c, kernelsOf(t, "untagged"))
		if n := taggedDiffer(t, e, 20); n == 0 {
			t.Errorf("model %d: kernels that look at no number give the same bits, so this test proves nothing", i)
		}
		done()
	}
}
