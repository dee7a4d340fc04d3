package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/marked"
)

// pairs is the metadata of a GGUF file.
type pairs map[string]any

func pairOfKey[T any](m pairs, key string) (value T, ok bool) {
	value, ok = m[key].(T)
	return value, ok
}

func (m pairs) String(key string) (string, bool)    { return pairOfKey[string](m, key) }
func (m pairs) Bool(key string) (bool, bool)        { return pairOfKey[bool](m, key) }
func (m pairs) Uint(key string) (uint64, bool)      { return pairOfKey[uint64](m, key) }
func (m pairs) Strings(key string) ([]string, bool) { return pairOfKey[[]string](m, key) }
func (m pairs) Ints(key string) ([]int64, bool)     { return pairOfKey[[]int64](m, key) }
func (m pairs) Floats(key string) ([]float64, bool) { return pairOfKey[[]float64](m, key) }

// with returns a copy with one value replaced, or removed if value is nil.
func (m pairs) with(key string, value any) pairs {
	out := pairs{}
	for k, v := range m {
		out[k] = v
	}
	if out[key] = value; value == nil {
		delete(out, key)
	}
	return out
}

// tokenizerFile is the part of a tokenizer.json that a converter reads.
type tokenizerFile struct {
	AddedTokens []addedToken `json:"added_tokens"`
	Model       bpeConfig
}

// converted returns the metadata that llama.cpp's converter writes for a tokenizer.json with merges.
func converted(t testing.TB, name, pre string, patch map[string]json.RawMessage) pairs {
	t.Helper()
	var f tokenizerFile
	data, err := json.Marshal(patchedFields(t, name, patch))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	merges := []string{}
	for _, p := range f.Model.Merges {
		merges = append(merges, p[0]+" "+p[1])
	}
	tokens, kinds := tokensOf(f)
	return pairs{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges,
		"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.add_bos_token": false}
}

// tokensOf returns the tokens by id and their types, with two unused ones at the end.
func tokensOf(f tokenizerFile) (tokens []string, kinds []int64) {
	last := int32(-1)
	for _, id := range f.Model.Vocab {
		last = max(last, id)
	}
	for _, a := range f.AddedTokens {
		last = max(last, *a.ID)
	}
	for id := range last + 3 {
		tokens, kinds = append(tokens, fmt.Sprintf("[PAD%d]", id)), append(kinds, int64(kindUnused))
	}
	for content, id := range f.Model.Vocab {
		tokens[id], kinds[id] = content, int64(kindNormal)
	}
	for _, a := range f.AddedTokens {
		tokens[*a.ID], kinds[*a.ID] = a.Content, int64(kindUser)
		if a.isControl() {
			kinds[*a.ID] = int64(kindControl)
		}
	}
	return tokens, kinds
}

// scored returns the metadata of the SentencePiece model of testdata.
func scored(t testing.TB) pairs {
	t.Helper()
	var f struct {
		Tokens []string
		Scores []float64
		Types  []int64
	}
	readJSON(t, "testdata/scores.json", &f)
	return pairs{"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": f.Tokens,
		"tokenizer.ggml.scores": f.Scores, "tokenizer.ggml.token_type": f.Types}
}

func fromGGUF(t testing.TB, m Metadata) (*Tokenizer, GGUFSettings) {
	t.Helper()
	tok, settings, err := FromGGUF(m)
	if err != nil {
		t.Fatal(err)
	}
	return tok, settings
}

// vectorsOf returns the cases of one file of vectors.
func vectorsOf(t testing.TB, file string) (cases []vectorCase) {
	t.Helper()
	readJSON(t, "testdata/"+file+"_vectors.json", &cases)
	return cases
}

// Ids and texts equal those of tokenizers with the tokenizer.json that transformers derives from
// the same SentencePiece model.
func TestGGUFScores(t *testing.T) {
	m := scored(t)
	tok, _ := fromGGUF(t, m)
	checkVectors(t, tok, vectorsOf(t, "scored")[0])
	checkSame(t, load(t, "scored", nil), tok)
	var whole []int64 // as old files have scores
	for _, s := range m["tokenizer.ggml.scores"].([]float64) {
		whole = append(whole, int64(s))
	}
	tok, _ = fromGGUF(t, m.with("tokenizer.ggml.scores", whole))
	checkVectors(t, tok, vectorsOf(t, "scored")[0])
}

// Every name gives the ids of tokenizers with the pipeline that the name stands for.
func TestGGUFPreTokenizers(t *testing.T) {
	cases := vectorsOf(t, "pre")
	aliases := map[string][]string{"llama-bpe": {"llama3", "llama-v3", "falcon3", "pixtral", "glm4"},
		"dbrx": {"smaug-bpe", "chatglm-bpe"}, "gpt-4o": {"llama4"}, "gpt-2": {"phi-2"}, "olmo": {"mpt"},
		"smollm": {"starcoder", "refact", "codeshell", "minerva-7b"}}
	names := 0
	for _, c := range cases {
		for _, name := range append(aliases[c.Tokenizer], c.Tokenizer) {
			tok, _ := fromGGUF(t, converted(t, "gpt2", name, patch("added_tokens", "[]")))
			checkVectors(t, tok, c)
			names++
		}
	}
	if names != len(ggufPieces) {
		t.Errorf("%d names have vectors, %d are known", names, len(ggufPieces))
	}
}

// plainAdded returns the patch that clears the options of added tokens, which GGUF lacks.
func plainAdded(t testing.TB, name string) map[string]json.RawMessage {
	t.Helper()
	var list []addedToken
	if err := json.Unmarshal(patchedFields(t, name, nil)["added_tokens"], &list); err != nil {
		t.Fatal(err)
	}
	for i, a := range list {
		list[i] = addedToken{ID: a.ID, Content: a.Content, Special: a.Special}
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]json.RawMessage{"added_tokens": data}
}

func TestGGUFMerges(t *testing.T) {
	for name, pre := range map[string]string{"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"} {
		t.Run(name, func(t *testing.T) {
			added := plainAdded(t, name)
			m := converted(t, name, pre, added)
			if name == "llama3" { // add_bos_token is true by default
				m = m.with("tokenizer.ggml.bos_token_id", uint64(702)).with("tokenizer.ggml.add_bos_token", nil)
			}
			tok, _ := fromGGUF(t, m)
			checkSame(t, load(t, name, added), tok)
		})
	}
}

// Ollama's converters list the tokens of generation_config.json that end an answer.
func TestGGUFEndList(t *testing.T) {
	ends := []int64{2, 300, 301}
	_, settings := fromGGUF(t, scored(t).with("tokenizer.ggml.eos_token_ids", ends))
	if !slices.Equal(settings.EndTokens, []int32{2, 300, 301}) {
		t.Errorf("end tokens %v", settings.EndTokens)
	}
}

// Phi-3's added tokens strip the white space behind them, and nothing in the metadata says so.
func TestGGUFPhi3(t *testing.T) {
	var added []addedToken
	readAdded := patchedFields(t, "phi3", nil)["added_tokens"]
	if err := json.Unmarshal(readAdded, &added); err != nil {
		t.Fatal(err)
	}
	m := scored(t)
	tokens, kinds := m["tokenizer.ggml.tokens"].([]string), m["tokenizer.ggml.token_type"].([]int64)
	scores := m["tokenizer.ggml.scores"].([]float64)
	for i := range added {
		if *added[i].ID < 3 {
			added[i].RStrip = added[i].Content == "</s>" // as published
			continue
		}
		*added[i].ID = int32(len(tokens))
		tokens, kinds, scores = append(tokens, added[i].Content), append(kinds, int64(kindControl)), append(scores, -1000)
	}
	m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"], m["tokenizer.ggml.scores"] = tokens, kinds, scores
	data, err := json.Marshal(added)
	if err != nil {
		t.Fatal(err)
	}
	want := load(t, "scored", map[string]json.RawMessage{"added_tokens": data})
	for key, value := range map[string]string{"general.architecture": "phi3", "general.name": "Phi-3 Mini"} {
		tok, _ := fromGGUF(t, m.with(key, value))
		if key == "general.architecture" {
			checkSame(t, want, tok)
		}
		got, err1 := tok.Encode("<|user|>\n hi<|end|> \n<|endoftext|> x")
		ids, err2 := want.Encode("<|user|>\n hi<|end|> \n<|endoftext|> x")
		if err1 != nil || err2 != nil || !slices.Equal(got, ids) {
			t.Errorf("%s: %v, want %v", key, got, ids)
		}
	}
}

// checkSame compares two tokenizers on all texts of the vectors and on random ones, whole and in
// pieces from different hands, and the texts of all ids.
func checkSame(t *testing.T, want, got *Tokenizer) {
	t.Helper()
	checkSameTexts(t, want, got, 20000)
}

// checkSameTexts is checkSame with n random texts.
func checkSameTexts(t *testing.T, want, got *Tokenizer, n int) {
	t.Helper()
	texts := randomTexts(n)
	for _, file := range []string{"families", "gpt2", "scored"} {
		for _, v := range vectorsOf(t, file)[0].Encode {
			texts = append(texts, v.Text)
		}
	}
	for i, text := range texts {
		parts := marked.Text{{Text: text}}
		if cut := strings.IndexByte(text, ' '); cut > 0 && i%2 == 0 {
			parts = marked.Text{{Text: text[:cut]}, {Text: text[cut:], Data: true}}
		}
		a, err1 := want.EncodeMarked(parts, true)
		b, err2 := got.EncodeMarked(parts, true)
		if err1 != nil || err2 != nil || !slices.Equal(a, b) {
			t.Fatalf("%q: %v %v, want %v %v", parts, b, err2, a, err1)
		}
	}
	if want.Vocab() != got.Vocab() || want.ModelVocab() != got.ModelVocab() {
		t.Errorf("%d and %d ids, want %d and %d", got.Vocab(), got.ModelVocab(), want.Vocab(), want.ModelVocab())
	}
	for id := range int32(want.Vocab()) {
		if a, b := want.TokenText(id), got.TokenText(id); a != b {
			t.Errorf("token %d is %q, want %q", id, b, a)
		}
	}
}

// randomTexts returns n texts of the characters and the tokens that merges and patterns care for.
func randomTexts(n int) (texts []string) {
	rng := rand.New(rand.NewSource(3))
	parts := strings.Split("a b c d e e h i l n o r s t t th he the in er 1 23 ' 's , . !! \n \r\n \t é e\u0301 ß 漢 字 👍 "+
		"▁ <s> </s> <unk> <|end|> <|begin|> <|im_start|> <|user|> <|endoftext|> <mask> word ab abcd [PAD1102]", " ")
	parts = append(parts, " ", " ", " ", "  ", "    ")
	for range n {
		text := ""
		for range rng.Intn(14) {
			text += parts[rng.Intn(len(parts))]
		}
		texts = append(texts, text)
	}
	return texts
}
