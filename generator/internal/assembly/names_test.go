package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/modelname"
	"reel.internal/reel/generator/internal/weights"
)

// noStores hides the stores of the user who runs the tests, and returns the directories of empty ones.
func noStores(t *testing.T) (hub, ollama string) {
	t.Helper()
	hub, ollama = t.TempDir(), t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	t.Setenv("OLLAMA_MODELS", ollama)
	return hub, ollama
}

// cached moves a model's directory into the Hugging Face cache as org/name, and returns its snapshot. Files are links
// to blobs.
func cached(t *testing.T, hub, dir string) string {
	t.Helper()
	repository := filepath.Join(hub, "models--org--name")
	snapshot := filepath.Join(repository, "snapshots/abc")
	entries, err := os.ReadDir(dir)
	err = errors.Join(err, os.MkdirAll(snapshot, 0o700), os.Mkdir(filepath.Join(repository, "refs"), 0o700),
		os.WriteFile(filepath.Join(repository, "refs/main"), []byte("abc"), 0o600),
		os.Rename(dir, filepath.Join(repository, "blobs")))
	for _, e := range entries {
		err = errors.Join(err, os.Symlink("../../blobs/"+e.Name(), filepath.Join(snapshot, e.Name())))
	}
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func keep(b []byte) []byte { return b }

func prepare(o config.Options) (Prepared, error) {
	o.Device = "host"
	return Prepare(o, func(float64, string) {})
}

// A repository in the Hugging Face cache is served by its name. A later download does not change the files of a model
// that is loaded.
func TestModelOfTheHuggingFaceCache(t *testing.T) {
	hub, _ := noStores(t)
	snapshot := cached(t, hub, family(t, "llama-2", "config.json", keep))
	l, err := prepare(config.Options{Model: "org/name"})
	if err != nil || l.Name != "org/name" || l.options.Model != snapshot {
		t.Fatalf("%s in %s: %v", l.Name, l.options.Model, err)
	}
	main := filepath.Join(hub, "models--org--name/refs/main")
	if err := os.WriteFile(main, []byte("def"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openWeights(l.options); err != nil {
		t.Errorf("after a download: %v", err)
	}
	if _, err := prepare(config.Options{Model: "org/name"}); !errors.Is(err, modelname.ErrMissing) {
		t.Errorf("after a download that was cut: %v", err)
	}
	_ = os.Remove(main)
	if l, err := prepare(config.Options{Model: "org/name", Name: "mine"}); err != nil || l.Name != "mine" {
		t.Errorf("%s: %v", l.Name, err)
	}
}

// Weights that a download left out, or cut, are named with the command that completes them.
func TestHalfADownload(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(snapshot string) error
		want   error
		says   string
	}{
		"shard": {func(s string) error { return os.Remove(filepath.Join(s, "model-00002-of-00003.safetensors")) },
			fs.ErrNotExist, "run hf download org/name"},
		"cut": {func(s string) error { return os.Truncate(filepath.Join(s, "model-00002-of-00003.safetensors"), 5000) },
			weights.ErrTruncated, "run hf download --force-download org/name"},
	} {
		hub, _ := noStores(t)
		snapshot := cached(t, hub, family(t, "mistral", "config.json", keep))
		if err := c.damage(snapshot); err != nil {
			t.Fatal(err)
		}
		_, err := prepare(config.Options{Model: "org/name"})
		if !errors.Is(err, c.want) || failure.ExitCode(err) != failure.ExitConfig || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, wants %q", name, err, c.says)
		}
	}
}

// GGUF files of the stores are served, with their own tokenizers.
func TestGGUFOfTheStores(t *testing.T) {
	hub, ollama := noStores(t)
	path := embeddedGGUF(t, "gpt-2", 0)
	dir := filepath.Dir(path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.Repeat("0a", 32)
	manifest := filepath.Join(ollama, "manifests/registry.ollama.ai/library/tiny/latest")
	err = errors.Join(os.MkdirAll(filepath.Dir(manifest), 0o700), os.Mkdir(filepath.Join(ollama, "blobs"), 0o700),
		os.Link(path, filepath.Join(ollama, "blobs/sha256-"+digest)), os.WriteFile(manifest, fmt.Appendf(nil,
			`{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s", "size": %d}]}`,
			digest, info.Size()), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cached(t, hub, dir)
	for model, name := range map[string]string{"org/name": "org/name", "org/name/tiny.gguf": "tiny",
		"ollama:tiny": "tiny:latest"} {
		l, err := prepare(config.Options{Model: model})
		if err != nil || l.Name != name || l.chat.Template == "" || len(l.warnings) != 0 {
			t.Errorf("%s: %q, %v, %q", model, l.Name, err, l.warnings)
		}
	}
}

// A path wins over a name, and a line says so if a store has the name too.
func TestPathsWinOverNames(t *testing.T) {
	hub, _ := noStores(t)
	dir, other := family(t, "llama-2", "config.json", keep), family(t, "qwen2", "config.json", keep)
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("org", 0o700), os.Rename(dir, "org/name")); err != nil {
		t.Fatal(err)
	}
	l, err := prepare(config.Options{Model: "org/name"})
	if err != nil || l.Name != "name" || len(l.warnings) != 1 { // of the tokenizer
		t.Fatalf("%s, %v, %q", l.Name, err, l.warnings)
	}
	cached(t, hub, other)
	l, err = prepare(config.Options{Model: "org/name"})
	if err != nil || l.Name != "name" || l.Model.Config.Name != "llama" || len(l.warnings) != 2 ||
		!strings.Contains(l.warnings[0], "org/name is taken, and not") || !strings.Contains(l.warnings[0], hub) {
		t.Fatalf("%s, %v, %q", l.Name, err, l.warnings)
	}
	if l, err = prepare(config.Options{Model: "./org/name"}); err != nil || len(l.warnings) != 1 {
		t.Errorf("%v, %q", err, l.warnings)
	}
}
