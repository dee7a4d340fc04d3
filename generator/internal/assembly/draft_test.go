package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/plan"
)

// replaceIn replaces the first occurrence of a text in a file.
func replaceIn(t *testing.T, path, old, by string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// withDraft returns options for a small context with a draft model.
func withDraft(dir string) config.Options {
	return config.Options{MaxSeqLen: 64, MaxBatch: 2, Draft: dir, DraftTokens: 3}
}

// A draft model's weights, step memory and pages are loaded beside the model's, and counted in the plan.
func TestDraftModelIsLoaded(t *testing.T) {
	dir := modelDir(t)
	o := withDraft(dir)
	with := prepared(t, o)
	without := prepared(t, config.Options{MaxSeqLen: 64, MaxBatch: 2})
	if with.EngineOptions.Draft != engine.DraftModel || with.EngineOptions.DraftModel.WeightBytes() == 0 ||
		with.pageBytes() != 2*without.pageBytes() || with.sizes.Arena <= without.sizes.Arena {
		t.Errorf("%+v, pages of %d bytes, and of %d without", with.EngineOptions, with.pageBytes(), without.pageBytes())
	}
	testPlannedBytes(t, o)
	if m, err := loadModel(t, o); err != nil || m.Engine.Stats().KV.PageBytes != with.pageBytes() {
		t.Errorf("%v, pages of %d bytes", err, with.pageBytes())
	}
	for place, dropped := range map[string]int{"": 0, dir: 3} { // a draft model that may guess nothing is not loaded
		o := config.Options{MaxSeqLen: 64, MaxBatch: 2, Draft: place, DraftTokens: 3 - dropped}
		if l := prepared(t, o); l.draft != nil || l.EngineOptions.Draft != engine.DraftOff {
			t.Errorf("--draft %q --draft-tokens %d loads a draft model", place, o.DraftTokens)
		}
	}
}

// A draft model that cannot be served, or has other tokens, ends the start with its cause.
func TestBadDraftModels(t *testing.T) {
	other, broken, unknown, silent := modelDir(t), modelDir(t), modelDir(t), modelDir(t, "tokenizer.json")
	replaceIn(t, filepath.Join(other, "tokenizer.json"), `"the": 889,`, `"the": 99999,`)
	replaceIn(t, filepath.Join(other, "tokenizer.json"), `"he": 259,`, `"he": 889,`)
	replaceIn(t, filepath.Join(other, "tokenizer.json"), `"the": 99999,`, `"the": 259,`)
	replaceIn(t, filepath.Join(broken, "config.json"), `"num_hidden_layers"`, `"number_of_layers"`)
	replaceIn(t, filepath.Join(unknown, "config.json"), `"llama"`, `"mamba"`)
	for dir, cause := range map[string]string{
		filepath.Join(other, "none"): "no such file",
		other:                        "another vocabulary",
		broken:                       "number_of_layers",
		unknown:                      "mamba",
		silent:                       "tokenizer",
	} {
		refused(t, withDraft(dir), cause)
	}
}

// refused fails unless a start with these options ends for a drafter, with this cause.
func refused(t *testing.T, o config.Options, cause string) {
	t.Helper()
	_, err := prepareOn(func(config.Options) (hardware.Hardware, error) { return hardware.Host(), nil }, o,
		func(float64, string) {})
	if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), cause) ||
		!strings.Contains(err.Error(), "--draft") {
		t.Errorf("%s: %v", cause, err)
	}
}

// Pages of an engine with a draft model are found only with the same one: its config and its weights count.
func TestPagesAreFoundByTheSameDraftModelOnly(t *testing.T) {
	dir, changed := modelDir(t), modelDir(t)
	weights := filepath.Join(changed, "model.safetensors")
	text, err := os.ReadFile(weights)
	if err == nil {
		text[len(text)-1] ^= 1
		err = os.WriteFile(weights, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[32]byte]string{}
	for _, place := range []string{"off", dir, changed} {
		l := prepared(t, withDraft(place))
		draft, err := l.draftSum(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum, err := l.pageIdentity([32]byte{}, draft)
		if err != nil || seen[sum] != "" {
			t.Errorf("%s has the identity of %q: %v", place, seen[sum], err)
		}
		seen[sum] = place
	}
}

// plan counts a draft model as the start does.
func TestPlanOfADraftModel(t *testing.T) {
	o := withDraft(modelDir(t))
	o.Device = "host"
	c, use, err := Headers(os.DirFS(o.Draft))
	if err == nil {
		err = DraftHeaders(o, c, &use)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := plan.ReportFor(c, use, o, "x", 1<<32)
	if l := prepared(t, o); err != nil || r.KV.PageBytes != l.pageBytes() || r.Arena != l.sizes.Arena ||
		r.WeightSum != l.planned()[0].Planned || r.Weights[len(r.Weights)-1].Parameters != c.Parameters() {
		t.Errorf("%+v, the start has %+v: %v", r, l.sizes, err)
	}
	o.Draft += "/none"
	if err := DraftHeaders(o, c, &use); !errors.Is(err, config.ErrConfig) {
		t.Error(err)
	}
}
