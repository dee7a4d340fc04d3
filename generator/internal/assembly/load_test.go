package assembly

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

// modelDir returns a copy of the embedded model's directory without the named files.
func modelDir(t *testing.T, without ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, tiny.Files); err != nil {
		t.Fatal(err)
	}
	for _, name := range without {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func loadModel(t *testing.T, o config.Options) (server.Model, error) {
	t.Helper()
	l, err := Load(t.Context(), o, func(float64, string) {})
	if err != nil {
		return server.Model{}, err
	}
	l.Engine.Stop()
	if err := l.Run(); err != nil {
		t.Fatal(err)
	}
	return l.Model, nil
}

func TestLoadADirectory(t *testing.T) {
	dir := modelDir(t)
	m, err := loadModel(t, config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 2})
	if err != nil || m.Name != filepath.Base(dir) || m.Limits.Context != 64 || m.Limits.MaxBatch != 2 {
		t.Fatalf("%+v, %v", m.Limits, err)
	}
	if ids, err := m.Tokenizer.EncodeMarked(marked.Trusted("ROMEO:"), true); err != nil || len(ids) < 2 {
		t.Errorf("encodes to %v, %v", ids, err)
	}
}

// A plan for the host and a generator's status have one figure of the weights: what the device takes, and the matrices as
// they are loaded, those too that are converted.
func TestWeightsHaveOneFigure(t *testing.T) {
	converted, _ := float8Model(t)
	dirs := []string{converted, ggufModel(t, "llama-2", zeros)}
	for _, family := range []string{"llama-2", "mistral", "phi-3", "qwen2", "qwen3-embedding", "olmoe", "gpt-oss-mxfp4",
		"deepseek-v2", "deepseek-v3", "gemma-4-e2b", "gemma-4-moe"} {
		dirs = append(dirs, filepath.Join("../model/testdata", family))
	}
	for _, dir := range dirs {
		o := config.Options{Model: dir, Device: "host", MaxSeqLen: 32, MaxBatch: 1}
		files, name, err := ModelFiles(o)
		if err != nil {
			t.Fatal(err)
		}
		c, use, err := Headers(files)
		if err != nil {
			t.Fatal(err)
		}
		r, err := plan.ReportFor(c, use, o, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Prepare(o, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		loaded := l.sizes.WeightBytes() + l.Model.WeightBytes()
		if status := l.planned()[0].Planned; r.WeightSum != loaded || status != loaded {
			t.Errorf("%s: the plan has %d bytes of weights, the status %d, and %d are loaded", dir, r.WeightSum, status, loaded)
		}
	}
}

// A GGUF file without a tokenizer says what gets one: the tokenizer.json beside it is not read.
func TestGGUFWithoutATokenizer(t *testing.T) {
	l, err := Prepare(config.Options{Model: ggufModel(t, "llama-2", unchanged), Device: "host"}, func(float64, string) {})
	if err != nil || !slices.Contains(l.warnings, noGGUFTokenizer) {
		t.Fatalf("warnings at start: %q, %v", l.warnings, err)
	}
	var text, form *protocol.Error
	_, err = l.tokenizer.EncodeMarked(marked.Trusted("text"), true)
	if !errors.As(err, &text) || !strings.Contains(text.Message, "GGUF file has no tokenizer") ||
		!strings.Contains(text.Hint, "complete GGUF file") || strings.Contains(text.Hint+text.Message, "tokenizer.json") {
		t.Errorf("a prompt of text: %v, %+v", err, text)
	}
	var loaded Loaded
	if err := loaded.startFormats(l.tokenizer, l.Model.Config, func(string) {}); err != nil {
		t.Fatal(err)
	}
	_, err = loaded.Model.Formats.Compile(t.Context(), engine.User{}, protocol.Format{})
	if !errors.As(err, &form) || !strings.Contains(form.Hint, "complete GGUF file") {
		t.Errorf("a format: %v, %+v", err, form)
	}
}

// A model without a tokenizer serves token ids, and refuses text with an error that says why.
func TestModelWithoutATokenizer(t *testing.T) {
	dir := modelDir(t, "tokenizer.json")
	m, err := loadModel(t, config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 2})
	if err != nil {
		t.Fatal(err)
	}
	var l Prepared
	if _, err := l.readTokenizer(os.DirFS(dir)); err != nil || !slices.Equal(l.warnings, []string{noTokenizer}) {
		t.Errorf("warnings at start: %q, %v", l.warnings, err)
	}
	for _, postProcessor := range []bool{true, false} {
		var e *protocol.Error
		if _, err := m.Tokenizer.EncodeMarked(marked.Trusted("text"), postProcessor); !errors.As(err, &e) || e.Code != protocol.CodeBadRequest ||
			!strings.Contains(e.Message, "no tokenizer.json") || !strings.Contains(e.Hint, "--tokens") {
			t.Errorf("a prompt of text: %v, %+v", err, e)
		}
	}
	if d := m.NewDecoder(nil); d.Push(1)+d.Flush() != "" || d.Held() != 0 {
		t.Error("a token without a tokenizer has text")
	}
}

// spoil returns a model's directory with one replacement in one file.
func spoil(t *testing.T, file, old, with string) string {
	t.Helper()
	dir := modelDir(t)
	path := filepath.Join(dir, file)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), old, with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// padded adds a token without a row in the embedding to tokenizer.json.
const padded = `"added_tokens": [{"id":4096,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,` +
	`"normalized":false,"special":true},`

// A checkpoint may have added tokens without rows in the embedding.
func TestAddedTokensWithoutRows(t *testing.T) {
	dir := spoil(t, "tokenizer.json", `"added_tokens": [`, padded)
	m, err := loadModel(t, config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 2})
	if err != nil || m.Limits.Vocab != 4096 {
		t.Fatalf("vocabulary %d, %v", m.Limits.Vocab, err)
	}
	ids, err := m.Tokenizer.EncodeMarked(marked.Trusted("[PAD]"), false)
	if err != nil || !slices.Equal(ids, []int32{4096}) {
		t.Errorf("encodes to %v, %v", ids, err)
	}
}

// An unusable model is a configuration error that names the fault and the whole path.
func TestModelsThatCannotBeServed(t *testing.T) {
	for want, o := range map[string]config.Options{
		"is not a directory": {Model: "load_test.go"},
		"no such file":       {Model: "/nowhere"},
		"config.json":        {Model: modelDir(t, "config.json")},
		"model.safetensors":  {Model: modelDir(t, "model.safetensors")},
		"model_type":         {Model: spoil(t, "config.json", `"model_type": "llama"`, `"model_type": "mamba"`)},
		"hidden_act":         {Model: spoil(t, "config.json", `"silu"`, `"gelu"`)},
		"the config asks":    {Model: spoil(t, "config.json", `"hidden_size": 256`, `"hidden_size": 512`)},
		"take both from one": {Model: spoil(t, "tokenizer.json", `"vocab": {`, `"vocab": {"<x>": 4096,`)},
		"max-seq-len":        {MaxSeqLen: 4096},
	} {
		_, err := loadModel(t, o)
		if !errors.Is(err, config.ErrConfig) && !errors.Is(err, fs.ErrNotExist) || err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), o.Model) {
			t.Errorf("wants an error with %q and %q: %v", want, o.Model, err)
		}
	}
}

// Conversations are reread on a GPU by default, and nothing on the host or without a cache.
func TestRereadMode(t *testing.T) {
	for _, c := range []struct {
		reread, scope string
		gpu           bool
		want          server.RereadMode
	}{
		{"auto", "user", true, server.RereadChat}, {"", "user", true, server.RereadChat},
		{"auto", "user", false, server.RereadOff},
		{"chat", "user", false, server.RereadChat}, {"all", "all", false, server.RereadAll},
		{"off", "user", true, server.RereadOff}, {"chat", "off", true, server.RereadOff},
	} {
		if got := rereadMode(config.Options{Reread: c.reread, CacheScope: c.scope}, c.gpu); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
