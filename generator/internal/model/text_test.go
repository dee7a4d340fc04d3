package model_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// renamed is a checkpoint under other names.
type renamed struct {
	model.Tensors
	names map[string]string // from the new name to the old one
}

func (r renamed) Tensor(name string) (weights.Tensor, error) {
	if own, ok := r.names[name]; ok {
		return r.Tensors.Tensor(own)
	}
	return weights.Tensor{}, weights.ErrMissing
}

func (r renamed) Names() (names []string) {
	for name := range r.names {
		names = append(names, name)
	}
	return names
}

// The tensors of text of a wrapped checkpoint are found under the names of transformers 4 and 5. Those of images are
// counted, and unknown ones refused. The head is tied if there is none.
func TestTextOfWrappedCheckpoint(t *testing.T) {
	c, text := checkpoint(t, "mistral-3")
	if !c.Wrapped || !c.TiedHead || c.Name != "mistral" {
		t.Errorf("%+v", c)
	}
	for _, form := range []struct{ model, head string }{
		{"language_model.model.", "language_model.lm_head.weight"}, {"model.language_model.", "lm_head.weight"},
	} {
		names := map[string]string{"vision_tower.a": "", "model.vision_tower.b": "", "multi_modal_projector.c": ""}
		for _, s := range c.Tensors() {
			names[form.model+strings.TrimPrefix(s.Name, "model.")] = s.Name
		}
		tied, tensors, others := c.Text(renamed{text, names})
		if err := tied.CheckTensors(tensors); err != nil || !tied.TiedHead || others != 3 {
			t.Errorf("%s: %d others, tied %v, %v", form.model, others, tied.TiedHead, err)
		}
		names[form.head] = "model.embed_tokens.weight"
		untied, tensors, _ := c.Text(renamed{text, names})
		if err := untied.CheckTensors(tensors); err != nil || untied.TiedHead {
			t.Errorf("%s: %+v, %v", form.head, untied, err)
		}
		names[form.model+"layers.0.other.weight"] = "model.norm.weight"
		_, tensors, _ = c.Text(renamed{text, names})
		if err := c.CheckTensors(tensors); !errors.Is(err, model.ErrTensor) || !strings.Contains(err.Error(), "other") {
			t.Errorf("%s: %v", form.model, err)
		}
	}
}

// The factors of longrope are those of the served context, for all positions: in a context of at most the original one
// the logits are those of transformers with the short factors, whatever the model's context is.
func TestShortFactorsOfLongRoPE(t *testing.T) {
	c, w := checkpointInFloat32(t, "phi-4-mini")
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	load := func(context int) *model.Model {
		c.Context = context
		m, err := model.Load(h, c, w, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	short, long := load(c.RoPE.Original), load(c.RoPE.Original+16)
	if slices.Equal(short.Config.RoPEDivisors, long.Config.RoPEDivisors) || short.Config.LongFactors != nil {
		t.Errorf("%+v", short.Config)
	}
	for _, g := range loadGolden(t, filepath.Join("testdata", "phi-4-mini", "short"), 3, c.Vocab) {
		g.Greedy = g.Greedy[:min(len(g.Greedy), 64-len(g.Tokens))]
		r := newRunner(t, h, short, 64, kernels.F32)
		got := []int32{r.prompt(g.Tokens, 64).Token}
		if e := relativeError(r.logits(), g.logits); !(e < 1e-4) {
			t.Errorf("%d tokens: logits differ by %.1e", len(g.Tokens), e)
		}
		for len(got) < len(g.Greedy) {
			got = append(got, r.decode().Token)
		}
		if !slices.Equal(got, g.Greedy) {
			t.Errorf("%d tokens: %v, wants %v", len(g.Tokens), got, g.Greedy)
		}
		r.free()
	}
}

// The plan of memory counts the rows that are copied, and a table for layers without RoPE.
func TestBytesOfRoPE(t *testing.T) {
	for name, want := range map[string]bool{"phi-4-mini": true, "smollm3": false, "llama-2": false} {
		c, w := checkpoint(t, name)
		if got := c.Reordered(w) > 0; got != want {
			t.Errorf("%s: %v", name, got)
		}
		tables := int64(1)
		if name == "smollm3" {
			tables = 2
		}
		if got := c.RoPEBytes(); got != tables*4*int64(c.Context)*int64(c.HeadDim) {
			t.Errorf("%s: %d bytes", name, got)
		}
	}
}
