package model_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// families are the folders of testdata: one checkpoint with golden values in each.
var families = []string{"llama-2", "llama-3.1", "llama-3.2", "mistral", "qwen2", "qwen2-window", "qwen3", "phi-3",
	"mistral-3", "ministral-3", "llama-linear", "qwen2-yarn", "phi-4-mini", "smollm3", "granite", "granite-4", "olmo-2",
	"olmo-3", "glm-4", "gemma-2", "gemma-3-text", "gemma-3", "gemma-4", "gemma-4-moe",
	"gemma-4-e2b", "qwen3-moe", "mixtral", "olmoe",
	"gpt-oss", "gpt-oss-mxfp4", "deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "glm-4.7-flash"}

// checkpoint opens the checkpoint in testdata/name.
func checkpoint(t testing.TB, name string) (model.Config, model.Tensors) {
	t.Helper()
	return checkpointAs(t, name, asTheyAre)
}

// checkpointAs opens the checkpoint in testdata/name with its tensors as the function makes them.
func checkpointAs(t testing.TB, name string, as func(model.Tensors) model.Tensors) (model.Config, model.Tensors) {
	t.Helper()
	dir := filepath.Join("testdata", name)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	c, text, _ := c.Text(as(w))
	named, err := c.Published(text)
	if err != nil {
		t.Fatal(err)
	}
	return c, named
}

// onHost loads a model on the host until the test ends.
func onHost(t testing.TB, c model.Config, w model.Tensors) (*device.Host, *model.Model) {
	t.Helper()
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	return h, m
}

// Every family is compared with transformers in float32 on the same values, in float32: logits
// after prompts of 1 to 300 tokens are within 1e-4 relative, 32 greedy tokens are equal, and
// chunks of any size give the same bits.
func TestFamiliesEqualTransformers(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpointInFloat32(t, name)
			h, m := onHost(t, c, w)
			worst, chunks := 0.0, []int{128, 7, 1}
			if testing.Short() { // for the race detector, which is slow
				chunks = chunks[1:2]
			}
			for _, g := range loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab) {
				worst = max(worst, equalsGolden(t, h, m, g, chunks...))
			}
			t.Logf("logits differ by %.1e relative at most", worst)
		})
	}
}

// Every family with its weights in bfloat16, as checkpoints have them, is compared with transformers in float32.
func TestFamiliesInBFloat16(t *testing.T) {
	if testing.Short() { // for the race detector, which is slow
		t.Skip("workers are those of TestFamiliesEqualTransformers")
	}
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpoint(t, name)
			h, m := onHost(t, c, w)
			equalsInBFloat16(t, h, m, filepath.Join("testdata", name), 5, kernels.F32)
		})
	}
}

// A model of any family that drafts for itself drafts what it then draws, after a prompt in chunks, after a decode step
// that it follows, and after its own drafts.
func TestFamiliesDraftForThemselves(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpoint(t, name)
			h, m := onHost(t, c, w)
			r := newRunnerIn(t, h, m, model.Geometry{MaxRows: 32, Slots: 1, MaxSamples: 8, Masks: 8, Context: c.Context,
				PageTokens: 16, Pages: c.Context / 16, RingSlots: 2, Drafter: model.ModelDrafter, DraftModel: m})
			t.Cleanup(r.free)
			r.prompt(loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab)[3].Tokens, 7)
			for step := range 4 {
				if step == 2 {
					r.follow()
				}
				if drafts, results := r.verify(7); results != 8 {
					t.Errorf("verify step %d: %d of the drafts %v stand", step, results-1, drafts)
				}
			}
		})
	}
}

// Powers of two that divide the residual stream and the results of gates change no bit of the results, and keep both
// small.
func TestDividedStreamGivesTheSameBits(t *testing.T) {
	c, w := checkpoint(t, "gemma-2")
	if c.StreamDivisor < 2 || c.InnerDivisor < 2 {
		t.Fatal("the stream of Gemma is not divided, or what its gates give")
	}
	tokens := loadGolden(t, filepath.Join("testdata", "gemma-2"), 5, c.Vocab)[2].Tokens
	divided := run(t, c, w, tokens)
	c.StreamDivisor, c.InnerDivisor = 1, 1
	for i, logits := range run(t, c, w, tokens) {
		if !slices.Equal(logits, divided[i]) {
			t.Errorf("logits %d differ by %.1e", i, relativeError(divided[i], logits))
		}
	}
}
