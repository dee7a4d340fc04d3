package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/marked"
)

// gemma4 returns the metadata that llama.cpp's converter writes for gemma4.json.
func gemma4(t testing.TB) pairs {
	t.Helper()
	m := converted(t, "gemma4", "", nil).with("tokenizer.ggml.pre", nil).with("tokenizer.ggml.model", "gemma4")
	tokens, kinds := m["tokenizer.ggml.tokens"].([]string), m["tokenizer.ggml.token_type"].([]int64)
	scores := make([]float64, len(tokens))
	for id, content := range tokens {
		scores[id] = -1000
		if _, is := byteOfContent(content); is {
			kinds[id] = int64(kindByte)
		}
		if slices.Contains(gemma4Visible, content) {
			kinds[id] = int64(kindUser)
		}
	}
	for key, id := range map[string]uint64{"bos": 2, "eos": 1, "unknown": 3, "padding": 0, "mask": 4} {
		m["tokenizer.ggml."+key+"_token_id"] = id
	}
	m["tokenizer.ggml.add_bos_token"], m["tokenizer.ggml.add_space_prefix"] = true, false
	m["tokenizer.ggml.scores"] = scores
	return m
}

// withBOS returns vectors with the token bos before each text.
func withBOS(c vectorCase) vectorCase {
	c.Rendered, c.Encode = c.Encode, slices.Clone(c.Encode)
	for i, e := range c.Encode {
		c.Encode[i].IDs = append([]int32{2}, e.IDs...)
	}
	return c
}

// A file of model gemma4 gives the ids and texts of tokenizers with the tokenizer.json that it was made from, after bos,
// whatever it says of bos and of a pre-tokenizer.
func TestGGUFGemma4(t *testing.T) {
	m := gemma4(t)
	for _, m := range []pairs{m, m.with("tokenizer.ggml.add_bos_token", false), m.with("tokenizer.ggml.pre", "gemma4")} {
		tok, _ := fromGGUF(t, m)
		checkVectors(t, tok, withBOS(vectorsOf(t, "gemma4")[0]))
	}
}

// The tokens that a file shows are control tokens, as in tokenizer.json, and those that end an answer are found by their
// texts. </s> is a text.
func TestGGUFGemma4Specials(t *testing.T) {
	tok, settings := fromGGUF(t, gemma4(t))
	want := load(t, "gemma4", nil)
	ends := []int32{}
	for _, text := range []string{"<eos>", "<|tool_response>", "<turn|>"} {
		id, _ := want.ID(text)
		ends = append(ends, id)
	}
	if !slices.Equal(settings.EndTokens, ends) || settings.Tokens["bos_token"] != "<bos>" || settings.Tokens["eos_token"] != "<eos>" {
		t.Errorf("%+v, wants the ends %v", settings, ends)
	}
	for _, text := range append(gemma4Visible, "<turn|>", "<bos>", "</s>") {
		id, _ := want.ID(text)
		ids, err := tok.EncodeMarked(marked.Data(text), false)
		if control := text != "</s>"; err != nil || slices.Contains(ids, id) == control || (decodeAll(tok, []int32{id}) == "") != control {
			t.Errorf("%s: %v, %q, %v", text, ids, decodeAll(tok, []int32{id}), err)
		}
	}
}

// Gemma 4 is written as llama.cpp's converter does, and read again with the same ids.
func TestToGGUFGemma4(t *testing.T) {
	read := gemma4(t)
	rows := len(read["tokenizer.ggml.tokens"].([]string)) - 2
	given := GGUFModel{Architecture: "gemma4", Rows: rows, ChatTemplate: "x", EndTokens: []int32{1, 16, 9},
		Tokens: map[string]string{"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}}
	m, warnings := written(t, patched(t, "gemma4", nil), given)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "bos") {
		t.Errorf("%q", warnings)
	}
	for key, value := range read {
		switch want := value.(type) {
		case string:
			if got, _ := m.String(key); got != want {
				t.Errorf("%s: %q, wants %q", key, got, want)
			}
		case bool:
			if got, ok := m.Bool(key); got != want || !ok {
				t.Errorf("%s: %t, wants %t", key, got, want)
			}
		case uint64:
			if got, ok := m.Uint(key); got != want || !ok {
				t.Errorf("%s: %d, wants %d", key, got, want)
			}
		case []string:
			if got, _ := m.Strings(key); len(want) < rows && !slices.Equal(got, want) || len(want) > rows && !slices.Equal(got, want[:rows]) {
				t.Errorf("%s differs", key)
			}
		case []int64:
			if got, _ := m.Ints(key); !slices.Equal(got, want[:rows]) {
				t.Errorf("%s: %d, wants %d", key, got, want[:rows])
			}
		case []float64:
			if got, _ := m.Floats(key); !slices.Equal(got, want[:rows]) {
				t.Errorf("%s: %v", key, got)
			}
		}
	}
	if _, has := m.String("tokenizer.ggml.pre"); has {
		t.Error("there is a pre-tokenizer")
	}
	if _, has := m.Uint("tokenizer.ggml.eot_token_id"); has {
		t.Error("an end token that is found by its text has a key")
	}
	tok, _ := fromGGUF(t, m)
	checkVectors(t, tok, withBOS(vectorsOf(t, "gemma4")[0]))
	with := patched(t, "gemma4", patch("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>",`+
		`"type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<bos>":{"id":"<bos>","ids":[2],"tokens":["<bos>"]}}}`))
	if _, warnings := written(t, with, given); len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
}
