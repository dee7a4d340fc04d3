package assembly

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
)

// family returns a copy of a tiny checkpoint of package model with one file changed.
func family(t *testing.T, name, file string, change func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../model/testdata", name))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func replace(old, with string) func([]byte) []byte {
	return func(raw []byte) []byte { return bytes.Replace(raw, []byte(old), []byte(with), 1) }
}

// A checkpoint is not trusted: each fault is an error that names file, tensor and fault,
// within a second and with little memory.
func TestHostileCheckpoints(t *testing.T) {
	const single, shard = "model.safetensors", "model-00002-of-00003.safetensors"
	for name, c := range map[string]struct {
		family, file string
		change       func([]byte) []byte
		want         error
		names        []string
	}{
		"header length": {"qwen2", single, func(b []byte) []byte { binary.LittleEndian.PutUint64(b, 1<<62); return b },
			weights.ErrTooLarge, []string{single}},
		"cut": {"qwen2", single, func(b []byte) []byte { return b[:len(b)-1] },
			weights.ErrTruncated, []string{single, "model."}},
		"cut shard": {"mistral", shard, func(b []byte) []byte { return b[:len(b)/2] },
			weights.ErrTruncated, []string{shard, "model."}},
		"tail": {"qwen2", single, func(b []byte) []byte { return append(b, 0) },
			weights.ErrRange, []string{single}},
		"dtype": {"qwen2", single, replace(`"BF16"`, `"BF17"`),
			weights.ErrDType, []string{single, "model.", "BF17"}},
		"mixed dtype": {"qwen3", single, replace(`"dtype":"F32","shape":[64,128]`, `"dtype":"F16","shape":[64,256]`),
			model.ErrTensor, []string{single, "o_proj"}},
		"shape": {"qwen2", single, replace(`"shape":[64,96]`, `"shape":[96,64]`),
			model.ErrTensor, []string{single, "down_proj", "[96 64]"}},
		"missing": {"qwen2", single, replace("layers.1.self_attn.k_proj.bias", "layers.1.self_attn.k_prov.bias"),
			weights.ErrMissing, []string{single, "model.layers.1.self_attn.k_proj.bias"}},
		"unknown": {"phi-3", single, replace("lm_head.weight", "mm_head.weight"),
			weights.ErrMissing, []string{single, "lm_head.weight"}},
		"a layer more": {"llama-2", "config.json", replace(`"num_hidden_layers": 2`, `"num_hidden_layers": 1`),
			model.ErrTensor, []string{single, "model.layers.1."}},
		"tied": {"phi-3", "config.json", replace(`"tie_word_embeddings": false`, `"tie_word_embeddings": true`),
			model.ErrTensor, []string{single, "lm_head.weight"}},
		"no biases": {"qwen2", "config.json", replace("qwen2", "llama"),
			model.ErrUnsupported, []string{"config.json", "Qwen2ForCausalLM"}},
		"index": {"mistral", "model.safetensors.index.json", replace("00002-of", "00003-of"),
			weights.ErrIndex, []string{"model-0000", "model."}},
		"huge config": {"qwen2", "config.json", func(b []byte) []byte { return append(b, make([]byte, maxConfig)...) },
			nil, []string{"config.json", "bytes"}},
		"deep config": {"qwen2", "config.json", replace(`"eos_token_id": 2`,
			`"eos_token_id": `+strings.Repeat("[", 1<<19)),
			nil, []string{"config.json", "depth"}},
		"many layers": {"llama-2", "config.json", replace(`"num_hidden_layers": 2`, `"num_hidden_layers": 999999999`),
			nil, []string{"config.json", "num_hidden_layers"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := family(t, c.family, c.file, c.change)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			_, err := openSource(os.DirFS(dir))
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%v, wants %v", err, c.want)
			}
			for _, n := range c.names {
				if !strings.Contains(err.Error(), n) {
					t.Errorf("%v does not name %s", err, n)
				}
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20 {
				t.Errorf("%d MiB were taken", taken>>20)
			}
			if took > 10*time.Second { // a second on an idle machine
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A file that changes after its headers were checked is an error that names it, and nothing
// stays allocated.
func TestFileChangesWhileItIsRead(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"shorter":   func(path string) error { return os.Truncate(path, 4096) },
		"longer":    func(path string) error { return os.Truncate(path, 1<<20) },
		"rewritten": func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
	} {
		dir := family(t, "llama-2", "config.json", func(b []byte) []byte { return b })
		s, err := openSource(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := change(filepath.Join(dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		h := device.NewHost(device.HostOptions{Workers: 1})
		m, err := s.load(h, s.config, true, func(float64) {})
		if m != nil || !errors.Is(err, weights.ErrChanged) || !strings.Contains(err.Error(), "model.safetensors") {
			t.Errorf("%s: %v, wants %v", name, err, weights.ErrChanged)
		}
		if live := h.Live(); live.Buffers != 0 {
			t.Errorf("%s: %d buffers are left", name, live.Buffers)
		}
		h.Close()
	}
}
