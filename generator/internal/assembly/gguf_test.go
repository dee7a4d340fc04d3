package assembly

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/kernels"
)

// ggufModel writes a family of package model as a GGUF file and returns its path.
func ggufModel(t *testing.T, family string, change func(weights.Tensor) weights.Tensor) string {
	t.Helper()
	s, err := openSource(os.DirFS(filepath.Join("../model/testdata", family)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.tensors.Close()
	path := filepath.Join(t.TempDir(), family+".gguf")
	data := ggufmake.File(ggufmake.Pairs(s.config), ggufmake.Tensors(s.config, s.tensors, change))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func unchanged(x weights.Tensor) weights.Tensor { return x }

// zeros replaces matrices by zeros in Q8_0.
func zeros(x weights.Tensor) weights.Tensor {
	if len(x.Shape) > 1 {
		x.DType, x.Data = weights.Q8_0, make([]byte, weights.Q8_0.Bytes(x.Shape[0]*x.Shape[1]))
	}
	return x
}

// A GGUF file is prepared on the host, without reading a tokenizer.json beside it, and its matrices' bytes count.
func TestGGUFIsPrepared(t *testing.T) {
	for family, change := range map[string]func(weights.Tensor) weights.Tensor{"llama-2": zeros, "qwen2": unchanged} {
		path := ggufModel(t, family, change)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "tokenizer.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Prepare(config.Options{Model: path, Device: "host"}, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		if l.Name != family || l.weights.Mapped() == 0 || l.Model.WeightBytes() >= l.weights.Mapped() {
			t.Errorf("%s: %d bytes of weights, %d mapped", l.Name, l.Model.WeightBytes(), l.weights.Mapped())
		}
		if _, err := l.weightsSum(t.Context(), config.Options{Model: path}); err != nil {
			t.Error(err)
		}
		if err := l.notFinite(t.Context(), config.Options{Model: path}); err != nil {
			t.Error(err)
		}
	}
}

// The rows of q and k that are put in order are copies, and count so.
func TestGGUFUse(t *testing.T) {
	path := ggufModel(t, "llama-2", zeros)
	f, _, err := ModelFiles(config.Options{Model: path})
	if err != nil {
		t.Fatal(err)
	}
	c, use, err := Headers(f)
	info, _ := os.Stat(path)
	copied := int64(c.Layers * 2 * weights.Q8_0.Bytes(64*64))
	if err != nil || use.Formats["model.embed_tokens.weight"] != kernels.Q8_0 || use.Copied != copied || use.Resident != info.Size()-copied {
		t.Errorf("%+v, %v: %d bytes are copied of %d", use, err, copied, info.Size())
	}
}

// The plan for a GPU takes quantised weights.
func TestQuantisedOnAGPU(t *testing.T) {
	o := config.Options{Model: ggufModel(t, "llama-2", zeros)}
	f, _, _ := ModelFiles(o)
	c, use, _ := Headers(f)
	if _, err := plan.ReportFor(c, use, o, "x", 1<<40); err != nil {
		t.Error(err)
	}
	o.Device = "host"
	if _, err := plan.ReportFor(c, use, o, "x", 0); err != nil {
		t.Error(err)
	}
}

// A scale that is no number is found in a quantised tensor.
func TestQuantisedNotFinite(t *testing.T) {
	o := config.Options{Device: "host", Model: ggufModel(t, "llama-2", func(x weights.Tensor) weights.Tensor {
		if x = zeros(x); strings.Contains(x.Name, "layers.1.mlp.up_proj") {
			binary.LittleEndian.PutUint16(x.Data[3*34:], 0x7e00)
		}
		return x
	})}
	l, err := Prepare(o, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	err = l.notFinite(t.Context(), o)
	if !errors.Is(err, weights.ErrNotFinite) || !strings.Contains(err.Error(), `"blk.1.ffn_up.weight": element 96 `) {
		t.Error(err)
	}
}

// Faults of a GGUF file are errors with exit code 78 that name it.
func TestHostileGGUF(t *testing.T) {
	good, err := os.ReadFile(ggufModel(t, "llama-2", unchanged))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"cut": {func(b []byte) []byte { return b[:len(b)-40] }, "download the file again"},
		"pairs": {func(b []byte) []byte { binary.LittleEndian.PutUint64(b[16:], 1<<60); return b },
			"key-value pairs"},
		"version": {func(b []byte) []byte { b[4] = 9; return b }, "version 9"},
		"family":  {replace("llama", "gemma"), "general.architecture is \"gemma\""},
		"key": {func(b []byte) []byte {
			at := slices.Index(b, byte('_')) // somewhere in the first key that has one
			b[at] = '-'
			return b
		}, "GGUF"},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, x.change(slices.Clone(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Prepare(config.Options{Model: path, Device: "host"}, func(float64, string) {})
		if failure.ExitCode(err) != failure.ExitConfig || !strings.Contains(err.Error(), x.says) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, wants %q", name, err, x.says)
		}
	}
}

// A GGUF file shows its parts and nothing else.
func TestGGUFFileSystem(t *testing.T) {
	const first, second = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	dir := tree(t, "x", map[string]string{first: "GGUF", second: "GGUF", "n-00002-of-00002.gguf": "GGUF",
		"m.gguf":         "GGUF",
		"tokenizer.json": "{}"})
	f, name, err := ModelFiles(config.Options{Model: filepath.Join(dir, first)})
	if err != nil || name != "m" {
		t.Fatal(name, err)
	}
	for name, want := range map[string]error{first: nil, second: nil, "n-00002-of-00002.gguf": fs.ErrNotExist,
		"m.gguf": fs.ErrNotExist, "tokenizer.json": fs.ErrNotExist, "../x/" + first: fs.ErrNotExist} {
		opened, err := f.Open(name)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, wants %v", name, err, want)
		}
		if err == nil {
			opened.Close()
		}
	}
}

// embeddedGGUF writes the embedded model as a GGUF file with its tokenizer, of that pre-tokenizer and with more tokens,
// and a template.
func embeddedGGUF(t *testing.T, pre string, more int) string {
	t.Helper()
	s, err := openSource(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer s.tensors.Close()
	raw, err := tiny.Files.ReadFile("tokenizer.json")
	var file struct {
		Model struct {
			Vocab  map[string]int32
			Merges [][2]string
		}
	}
	if err = errors.Join(err, json.Unmarshal(raw, &file)); err != nil {
		t.Fatal(err)
	}
	n := s.config.Vocab + more
	tokens, merges, kinds := make([]string, n), []string{}, make([]int32, n)
	for id := range tokens {
		tokens[id], kinds[id] = fmt.Sprint("more", id), 1
	}
	for token, id := range file.Model.Vocab {
		tokens[id], kinds[id] = token, 1
	}
	for _, m := range file.Model.Merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	kinds[0], kinds[1] = 3, 3 // control
	pairs := append(ggufmake.Pairs(s.config), ggufmake.Pair{Key: "tokenizer.ggml.model", Value: "gpt2"},
		ggufmake.Pair{Key: "tokenizer.ggml.pre", Value: pre},
		ggufmake.Pair{Key: "tokenizer.ggml.tokens", Value: tokens},
		ggufmake.Pair{Key: "tokenizer.ggml.token_type", Value: kinds},
		ggufmake.Pair{Key: "tokenizer.ggml.merges", Value: merges},
		ggufmake.Pair{Key: "tokenizer.ggml.bos_token_id", Value: uint32(0)},
		ggufmake.Pair{Key: "tokenizer.ggml.add_bos_token", Value: true},
		ggufmake.Pair{Key: "tokenizer.chat_template", Value: "{{ bos_token }}{{ messages[0].content }}"})
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	data := ggufmake.File(pairs, ggufmake.Tensors(s.config, s.tensors, unchanged))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The tokenizer, the end tokens and the chat template come from the file's metadata.
func TestGGUFTokenizer(t *testing.T) {
	silent := func(float64, string) {}
	l, err := Prepare(config.Options{Model: embeddedGGUF(t, "gpt-2", 0), Device: "host"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Prepare(config.Options{Device: "host"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "To be, or not to be", "1234 <|end_of_text|> été\n\n"} {
		a, err := l.tokenizer.EncodeMarked(marked.Data(text), true)
		b, err2 := want.tokenizer.EncodeMarked(marked.Data(text), true)
		if err != nil || err2 != nil || !slices.Equal(a, b) {
			t.Errorf("%q: %v, %v, wants %v, %v", text, a, err, b, err2)
		}
	}
	short := []memlimit.Limit{{}, {Kind: memlimit.Data, Name: "a limit", Bound: 1 << 30, Left: startRoom + 1<<20}}
	files, _, _ := ModelFiles(config.Options{Model: embeddedGGUF(t, "gpt-2", 0)})
	if _, err = new(Prepared).open(files, short); !errors.Is(err, config.ErrNoRoom) {
		t.Errorf("with 1 MiB for the tokenizer: %v", err)
	}
	if !slices.Equal(l.Model.Config.EOS, want.Model.Config.EOS) || len(l.warnings) != len(want.warnings) {
		t.Errorf("%v, %v", l.Model.Config.EOS, l.warnings)
	}
	if l.chat.Template == "" || l.chat.Tokens["bos_token"] != "<|begin_of_text|>" {
		t.Errorf("%+v", l.chat)
	}
	for path, says := range map[string]string{embeddedGGUF(t, "nonesuch", 0): "nonesuch",
		embeddedGGUF(t, "gpt-2", 1): "4097 tokens"} {
		_, err = Prepare(config.Options{Model: path, Device: "host"}, silent)
		if failure.ExitCode(err) != failure.ExitConfig || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, wants %q", err, says)
		}
	}
}
