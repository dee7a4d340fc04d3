package tokenizer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/tiny"
)

// TestEmbeddedModel checks the vectors of transformers for the embedded model.
func TestEmbeddedModel(t *testing.T) {
	tok, err := Load(tiny.Files)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Text    string
		IDs     []int32
		Decoded string
	}
	readJSON(t, "../../tiny/golden/tokenizer_vectors.json", &vectors)
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		got, err := tok.Encode(v.Text)
		if err != nil || !slices.Equal(got, v.IDs) {
			t.Errorf("Encode(%q) = %v, %v, want %v", v.Text, got, err, v.IDs)
		}
		if got := decodeAll(tok, v.IDs); got != v.Decoded {
			t.Errorf("decode(%v) = %q, want %q", v.IDs, got, v.Decoded)
		}
	}
}

func TestVocabulary(t *testing.T) {
	tok := load(t, "gpt2", nil)
	if tok.Vocab() != 615 {
		t.Errorf("Vocab = %d, want 615", tok.Vocab())
	}
	if tok.MaxTokenBytes() != len(" unreached") {
		t.Errorf("MaxTokenBytes = %d, want %d", tok.MaxTokenBytes(), len(" unreached"))
	}
	for content, want := range map[string]int32{"!": 0, "<|end|>": 603, "unreached": 600} {
		if id, ok := tok.ID(content); id != want || !ok {
			t.Errorf("ID(%q) = %d, %v, want %d", content, id, ok, want)
		}
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Errorf("ID of no token = %d", id)
	}
}

// TestMaxTokenBytes checks the bound on text before normalisation.
func TestMaxTokenBytes(t *testing.T) {
	for name, times := range map[string]int{"llama2": 1, "qwen2": 3} {
		if tok := load(t, name, nil); tok.MaxTokenBytes() != times*tok.longest {
			t.Errorf("%s: %d bytes, want %d times %d", name, tok.MaxTokenBytes(), times, tok.longest)
		}
	}
	tok := load(t, "llama2", patch("normalizer", `{"type":"Replace","pattern":{"String":"abcde"},"content":"xy"}`))
	if tok.MaxTokenBytes() != 3*tok.longest {
		t.Errorf("%d bytes, want 3 times %d", tok.MaxTokenBytes(), tok.longest)
	}
}

func TestTokenText(t *testing.T) {
	tok := load(t, "gpt2", nil)
	for content, want := range map[string]string{"Ġunreached": " unreached", "<|end|>": "<|end|>", "Ċ": "\n",
		"Ã": "\uFFFD", "¡": "\uFFFD"} {
		id, ok := tok.ID(content)
		if got := tok.TokenText(id); !ok || got != want {
			t.Errorf("TokenText(%q) = %q, want %q", content, got, want)
		}
	}
	for _, id := range []int32{-1, 615, 1<<31 - 1} {
		if got := tok.TokenText(id); got != "" {
			t.Errorf("TokenText(%d) = %q", id, got)
		}
	}
}

func TestTokenBytes(t *testing.T) {
	tok := load(t, "gpt2", nil)
	for content, want := range map[string]string{"Ġunreached": " unreached", "Ã": "\xc3", "<|end|>": ""} {
		id, _ := tok.ID(content)
		if got, ok := tok.TokenBytes(id); got != want || ok != (want != "") {
			t.Errorf("TokenBytes(%q) = %q, %v, want %q", content, got, ok, want)
		}
	}
	for _, id := range []int32{-1, 615, 1<<31 - 1} {
		if got, ok := tok.TokenBytes(id); ok {
			t.Errorf("TokenBytes(%d) = %q", id, got)
		}
	}
}

func TestNotUTF8(t *testing.T) {
	tok := load(t, "gpt2", nil)
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} {
		if ids, err := tok.Encode(text); !errors.Is(err, ErrNotUTF8) {
			t.Errorf("Encode(%q) = %v, %v", text, ids, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := load(t, "llama3", nil)
	want, err := tok.Encode("Speak, speak. 12345")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan bool)
	for range 8 {
		go func() {
			got, err := tok.Encode("Speak, speak. 12345")
			results <- err == nil && slices.Equal(got, want)
		}()
	}
	for range 8 {
		if !<-results {
			t.Error("a concurrent call has another result")
		}
	}
}

// FuzzEncode checks decode(encode(x)) = x for text without special tokens.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "Hello  world", "'ſ 12345\r\n\t x", "👩‍👩‍👧‍👦é",
		"plainer word  <left> ab"} {
		f.Add(s)
	}
	gpt2, llama3 := load(f, "gpt2", patch("added_tokens", "[]")), load(f, "llama3", nil)
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*Tokenizer{gpt2, llama3} {
			ids, err := tok.Encode(text)
			if (err == nil) != utf8.ValidString(text) {
				t.Fatalf("Encode(%q): %v", text, err)
			}
			plain := tok == gpt2 || !strings.ContainsAny(text, "<\u0120")
			if got := decodeAll(tok, ids); err == nil && plain && got != text {
				t.Errorf("%q came back as %q", text, got)
			}
		}
	})
}

// FuzzFamilies checks decode(encode(x)) = x, or x in form C, for every family.
func FuzzFamilies(f *testing.F) {
	for _, s := range []string{"", "Hello  world", "  12345\r\n\t x", "👩‍👩‍👧‍👦é", "▁a ▁",
		"e\u0327\u0301", "<s> x"} {
		f.Add(s)
	}
	tokenizers := map[string]*Tokenizer{}
	for _, name := range []string{"llama2", "mistral", "phi3", "across", "qwen2"} {
		tokenizers[name] = load(f, name, patch("added_tokens", "[]"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range tokenizers {
			ids, err := tok.EncodeMarked(marked.Trusted(text), false)
			if (err == nil) != utf8.ValidString(text) {
				t.Fatalf("%s: Encode(%q): %v", name, text, err)
			}
			want := strings.ReplaceAll(text, space, " ")
			switch {
			case name == "qwen2":
				want = rewritten(nfc, text)
			case name == "mistral" && strings.HasPrefix(want, " "):
				want = want[1:] // Metaspace prepends no space to a text that begins with one
			}
			if got := decodeAll(tok, ids); err == nil && got != want {
				t.Errorf("%s: %q came back as %q", name, text, got)
			}
			if n := len(ids) * tok.MaxTokenBytes(); err == nil && len(text) > n {
				t.Errorf("%s: %q has %d tokens, %d bytes at most", name, text, len(ids), n)
			}
		}
	})
}

// TestLongTexts encodes 270 kB without a space, and of spaces, for every family. It would take
// minutes if anything were quadratic.
func TestLongTexts(t *testing.T) {
	bytes := 270_000
	if testing.Short() {
		bytes = 30_000 // under the race detector
	}
	for _, name := range []string{"llama2", "across", "qwen2"} {
		tok := load(t, name, nil)
		for _, unit := range []string{"a", "the", "e\u0301", " ", "\n", "漢", "💩", "\u0301", "▁", "<s",
			"<|end", "\u1100"} {
			text := strings.Repeat(unit, bytes/len(unit))
			want := strings.ReplaceAll(text, space, " ")
			if name == "qwen2" {
				want = rewritten(nfc, text)
			}
			ids, err := tok.Encode(text)
			if err != nil || decodeAll(tok, ids) != want {
				t.Errorf("%s: %q repeated does not come back: %v", name, unit, err)
			}
		}
	}
}

func benchmarkEncode(b *testing.B, name, text string) {
	tok := load(b, name, nil)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.Encode(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"gpt2", "llama3"} {
		b.Run(name+"/prose", func(b *testing.B) { benchmarkEncode(b, name, prose()) })
		b.Run(name+"/one_word", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat("the", 30_000)) })
		b.Run(name+"/spaces", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat(" ", 90_000)) })
	}
}

func BenchmarkFamilies(b *testing.B) {
	for _, name := range []string{"llama2", "across", "qwen2"} {
		b.Run(name+"/prose", func(b *testing.B) { benchmarkEncode(b, name, prose()) })
		b.Run(name+"/one_word", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat("the", 30_000)) })
		b.Run(name+"/spaces", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat(" ", 90_000)) })
		b.Run(name+"/mixed", func(b *testing.B) { benchmarkEncode(b, name, mixed()) })
	}
}

// prose returns 90 kB of repeated prose.
func prose() string {
	const lines = "Before we proceed any further, hear me speak. " +
		"You are all resolved rather to die than to famish?\n"
	return strings.Repeat(lines, 928)[:90_000]
}

// mixed returns 90 kB in which few pieces repeat.
func mixed() string {
	random := rand.New(rand.NewPCG(1, 1))
	ranges := [][2]int{{'a', 'z'}, {'0', '9'}, {'!', '/'}, {' ', ' '}, {0x370, 0x4ff}, {0x4e00, 0x9fff}}
	var b strings.Builder
	for b.Len() < 90_000 {
		r := ranges[random.IntN(len(ranges))]
		b.WriteRune(rune(r[0] + random.IntN(r[1]-r[0]+1)))
	}
	return b.String()
}

func BenchmarkShort(b *testing.B) {
	const prompt = "Before we proceed any further, hear me speak. What's 12 and 30?"
	for _, name := range []string{"llama3", "llama2", "qwen2", "unigram"} {
		b.Run(name, func(b *testing.B) { benchmarkEncode(b, name, prompt) })
	}
}
