package assembly

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// ollamaGemma writes Gemma 3 as Ollama's converter does, with a tokenizer of more tokens than the embedding has rows
// and without a chat template, and returns its path.
func ollamaGemma(t *testing.T, name string, more ...ggufmake.Pair) string {
	t.Helper()
	s, err := openSource(os.DirFS("../model/testdata/gemma-3-text"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.tensors.Close()
	n := s.config.Vocab + 2
	tokens, scores, kinds := make([]string, n), make([]float32, n), make([]int32, n)
	for id := range tokens {
		tokens[id], scores[id], kinds[id] = fmt.Sprint("word", id), float32(-id), 1
		if id >= 4 && id < 260 {
			tokens[id], kinds[id] = fmt.Sprintf("<0x%02X>", id-4), 6
		}
	}
	copy(tokens, []string{"<pad>", "<eos>", "<bos>", "<unk>"})
	copy(kinds, []int32{3, 3, 3, 2})
	copy(tokens[260:], []string{"a", "b", "ab", "▁", "▁ab", "<end_of_turn>"})
	tokens[n-1] = "<image_soft_token>"
	pairs := slices.DeleteFunc(ggufmake.Pairs(s.config), func(p ggufmake.Pair) bool {
		return strings.Contains(p.Key, "epsilon") || strings.Contains(p.Key, "freq_base")
	})
	for key, value := range map[string]any{"model": "llama", "pre": "default", "tokens": tokens, "scores": scores,
		"token_type": kinds, "bos_token_id": uint32(2), "eos_token_id": uint32(1), "unknown_token_id": uint32(3),
		"eos_token_ids": []int32{1, 265}, "add_padding_token": false} {
		pairs = slices.DeleteFunc(pairs, func(p ggufmake.Pair) bool { return p.Key == "tokenizer.ggml."+key })
		pairs = append(pairs, ggufmake.Pair{Key: "tokenizer.ggml." + key, Value: value})
	}
	pairs = append(pairs, ggufmake.Pair{Key: "gemma3.mm.tokens_per_image", Value: uint32(256)},
		ggufmake.Pair{Key: "gemma3.vision.block_count", Value: uint32(27)})
	pairs = append(pairs, more...)
	list := ggufmake.Tensors(s.config, s.tensors, unchanged)
	for _, name := range []string{"v.patch_embedding.weight", "v.blk.0.attn_q.weight", "mm.mm_input_projection.weight"} {
		image := weights.Tensor{Name: name, DType: weights.F16, Shape: []int{2, 2}, Data: make([]byte, 8)}
		list = append(list, image)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, ggufmake.File(pairs, list), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of Ollama's is prepared with its own tokenizer, without tokens that have no row, and says what it leaves out.
func TestOllamaGGUF(t *testing.T) {
	blob := "sha256-" + strings.Repeat("0a", 32)
	o := config.Options{Model: ollamaGemma(t, blob), Device: "host"}
	l, err := prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := l.tokenizer.EncodeMarked(marked.Data("ab ab"), true)
	if err != nil || !slices.Equal(ids, []int32{2, 262, 264}) {
		t.Errorf("%v, %v: no space is put in front of a text", ids, err)
	}
	if text := l.tokenizer.TokenText(293); text != "" || !slices.Equal(l.Model.Config.EOS, []int32{1, 265}) {
		t.Errorf("token 293 is %q, and %v end an answer", text, l.Model.Config.EOS)
	}
	for i, says := range []string{"3 tensors of the checkpoint are for images", "--chat-template FILE"} {
		if !slices.ContainsFunc(l.warnings, func(line string) bool { return strings.Contains(line, says) }) {
			t.Errorf("%d: %q, wants a line with %q", i, l.warnings, says)
		}
	}
	if err := l.notFinite(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// Only a file of Ollama's store has a template beside it, and only one without a template of its own needs another.
func TestNoOllamaTemplate(t *testing.T) {
	for name, more := range map[string][]ggufmake.Pair{"gemma.gguf": nil,
		"sha256-" + strings.Repeat("0b", 32): {{Key: "tokenizer.chat_template", Value: "{{ messages[0].content }}"}}} {
		l, err := prepare(config.Options{Model: ollamaGemma(t, name, more...), Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(l.warnings, noOllamaTemplate) {
			t.Errorf("%s: %q", name, l.warnings)
		}
	}
}
