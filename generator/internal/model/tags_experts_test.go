package model_test

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// tagExperts is a small model of experts as Qwen3-30B-A3B, tagMixed one with a dense layer among them.
func tagExperts() model.Config {
	c := tagConfig()
	c.HeadNorms, c.Experts = true, &model.Experts{Count: 16, Used: 4, Inner: 64, Normalise: true}
	return c
}

func tagMixed() model.Config {
	c := tagExperts()
	c.Experts.Dense = []bool{true, false, false}
	return c
}

// tagSinks is one as gpt-oss.
func tagSinks() model.Config {
	c := tagExperts()
	c.HeadNorms, c.Bias, c.OutputBias, c.Sinks, c.Windows = false, true, true, true, []int{16, 0, 16}
	e := c.Experts
	e.Scoring, e.Normalise, e.RouterBias, e.Bias, e.Limit = kernels.SoftmaxOfChosen, false, true, true, 7
	return c
}

// taggedOps is how many ops of a pass have tags: 5 of a dense layer, 4 of one with experts.
func taggedOps(c model.Config, samples int) int {
	n := 1 + 5*c.Layers + samples
	if c.Experts != nil {
		for i := range c.Layers {
			if c.Experts.Dense == nil || !c.Experts.Dense[i] {
				n--
			}
		}
	}
	return n
}

// runExperts passes values on between the kernels of experts: logits and the choice go to the gates, the choice and the
// gates' results to the down projection.
func (d *tagDevice) runExperts(o kernels.Experts) {
	d.t.Helper()
	between := []device.Buffer{o.Between.Logits, o.Between.Choice, o.Between.Inner}
	for _, b := range between {
		if got, ok := d.tags[b]; ok && got >= d.pass+o.Tags.Given {
			d.t.Fatalf("a number %d of this pass is there before %d", got, d.pass+o.Tags.Given)
		}
		d.tags[b] = d.pass + o.Tags.Given
	}
}

// codedExperts are tensors of which the stacks of experts are codes.
type codedExperts struct {
	model.Tensors
	dtype weights.DType
}

func (c codedExperts) Tensor(name string) (weights.Tensor, error) {
	x, err := c.Tensors.Tensor(name)
	if err == nil && strings.Contains(name, ".experts.") && strings.Contains(name, ".weight") {
		elements, bytes := c.dtype.Block()
		x.DType, x.Data = c.dtype, make([]byte, len(x.Data)/2/elements*bytes)
	}
	return x, err
}

// A mixture whose experts are codes has tagged values too, of Q4_K where experts are narrow, and of MXFP4 where they are
// wide.
func TestExpertsOverCodesAreTagged(t *testing.T) {
	for _, test := range []struct {
		dtype         weights.DType
		hidden, inner int
		want          bool
	}{{weights.Q4_K, 256, 256, true}, {weights.Q4_K, 256, 2048, false}, // of 2048 columns the down projection has a ring
		{weights.MXFP4, 192, 576, true}, {weights.MXFP4, 192, 448, false}} {
		c := tagSinks()
		c.Hidden, c.Experts.Inner, c.Experts.Count, c.Experts.Used = test.hidden, test.inner, 4, 4
		r := newTagRigOf(t, c, codedExperts{zerosOf(c), test.dtype}, kernels.BF16, model.NoDrafter)
		ops, n := r.ops(model.Shape{Rows: 1, Samples: 1}), 0
		if test.want {
			n = taggedOps(c, 1)
		}
		if got := tagged(ops); got != n {
			t.Errorf("%+v: %d ops with tags, wants %d", test, got, n)
		}
		for _, op := range ops {
			if err := op.Check(); err != nil {
				t.Errorf("%s: %v", op.Kernel(), err)
			}
		}
	}
}
