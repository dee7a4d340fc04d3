package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/marked"
)

// written returns the metadata that ToGGUF writes.
func written(t *testing.T, fsys fs.FS, m GGUFModel) (ggufMetadata, []string) {
	t.Helper()
	pairs, warnings, err := ToGGUF(fsys, m)
	if err != nil {
		t.Fatal(err)
	}
	out := ggufMetadata{"general.architecture": m.Architecture}
	for _, p := range pairs {
		if _, twice := out[p.Key]; twice {
			t.Errorf("%s occurs twice", p.Key)
		}
		out[p.Key] = p.Value
	}
	return out, warnings
}

// The metadata gives the ids of the tokenizer.json that it was made from, and the same special tokens.
func TestToGGUF(t *testing.T) {
	for name, c := range map[string]struct {
		pre      string
		rows     int
		special  map[string]string
		ends     []int32
		settings map[string]string
	}{
		"gpt2": {"gpt-2", 620, nil, nil, nil},
		"llama3": {"llama-bpe", 720, map[string]string{"bos_token": "<|begin|>", "eos_token": "<|end|>"}, nil,
			map[string]string{"bos_token": "<|begin|>", "eos_token": "<|end|>"}},
		"qwen2": {"qwen2", 660, map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, nil,
			map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}},
		"scored": {"default", 1103, map[string]string{"bos_token": "<s>", "unk_token": "<unk>"}, []int32{2},
			map[string]string{"bos_token": "<s>", "unk_token": "<unk>", "eos_token": "</s>"}},
	} {
		t.Run(name, func(t *testing.T) {
			added := plainAdded(t, name)
			m, warnings := written(t, patched(t, name, added), GGUFModel{Architecture: "llama", Rows: c.rows,
				ChatTemplate: "{{ x }}", Tokens: c.special, EndTokens: c.ends})
			want := load(t, name, added)
			got, settings := fromGGUF(t, m)
			checkSameTexts(t, want, got, 1000)
			if pre, _ := m.String("tokenizer.ggml.pre"); pre != c.pre || len(warnings) > 0 {
				t.Errorf("%q, %q", pre, warnings)
			}
			tokens, _ := m.Strings("tokenizer.ggml.tokens")
			kinds, _ := m.Ints("tokenizer.ggml.token_type")
			if len(tokens) != c.rows || len(kinds) != c.rows || !strings.HasPrefix(tokens[c.rows-1], "[PAD") {
				t.Errorf("%d tokens, the last is %q", len(tokens), tokens[len(tokens)-1])
			}
			if settings.ChatTemplate != "{{ x }}" {
				t.Errorf("%+v", settings)
			}
			for key, text := range c.settings {
				if settings.Tokens[key] != text {
					t.Errorf("%s is %q, wants %q", key, settings.Tokens[key], text)
				}
			}
		})
	}
}

// Every name of a pre-tokenizer that is written is found again from its own pipeline.
func TestToGGUFPreTokenizers(t *testing.T) {
	for _, name := range preferred {
		p, err := namedPipeline(ggufMetadata{"tokenizer.ggml.pre": name})
		if err != nil {
			t.Fatal(err)
		}
		patch := map[string]json.RawMessage{"added_tokens": []byte("[]"), "pre_tokenizer": p.pieces}
		if patch["normalizer"] = p.normalizer; p.normalizer == nil {
			patch["normalizer"] = []byte("null")
		}
		var model map[string]json.RawMessage
		if err := json.Unmarshal(patchedFields(t, "gpt2", nil)["model"], &model); err != nil {
			t.Fatal(err)
		}
		model["ignore_merges"] = toJSON(p.ignoreMerges)
		patch["model"] = toJSON(model)
		m, _ := written(t, patched(t, "gpt2", patch), GGUFModel{Architecture: "llama", Rows: 610})
		if pre, _ := m.String("tokenizer.ggml.pre"); pre != name {
			t.Errorf("%q, wants %q", pre, name)
		}
	}
}

// BOS and EOS are those of the post-processor; end tokens that no reader finds by text have a key.
func TestToGGUFSpecials(t *testing.T) {
	m, warnings := written(t, patched(t, "llama3", plainAdded(t, "llama3")), GGUFModel{Architecture: "llama", Rows: 720,
		EndTokens: []int32{703, 718, 5, 6, 7000}})
	got, settings := fromGGUF(t, m)
	prefix := load(t, "llama3", nil).post.prefix
	if ids, err := got.Encode(""); err != nil || len(prefix) != 1 || !slices.Equal(ids, prefix) {
		t.Errorf("%v, wants %v, %v", ids, prefix, err)
	}
	eot, _ := m.Uint("tokenizer.ggml.eot_token_id")
	if eot != 5 || !slices.Contains(settings.EndTokens, 5) || !slices.Contains(settings.EndTokens, 703) {
		t.Errorf("eot is %d, ends %v", eot, settings.EndTokens)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "end token 6") {
		t.Errorf("%q", warnings)
	}
}

// A space prefix at the start of texts only, as Metaspace has it, differs beside control tokens, and is said.
func TestToGGUFWarnsOfSpaces(t *testing.T) {
	pieces := []byte(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false}`)
	decoder := []byte(`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},` +
		`{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`)
	fsys := patched(t, "scored", map[string]json.RawMessage{"normalizer": []byte("null"), "pre_tokenizer": pieces,
		"decoder": decoder})
	m, warnings := written(t, fsys, GGUFModel{Architecture: "llama", Rows: 1100})
	if len(warnings) != 1 || !strings.Contains(warnings[0], "other ids") {
		t.Errorf("%q", warnings)
	}
	got, _ := fromGGUF(t, m)
	if own, _ := Load(fsys); !sameIDs(own, got, marked.Data("the  king "), true) {
		t.Error("plain text differs")
	}
	pieces = []byte(strings.Replace(string(pieces), "first", "never", 1))
	m, warnings = written(t, patched(t, "scored", map[string]json.RawMessage{"normalizer": []byte("null"),
		"pre_tokenizer": pieces, "decoder": decoder}), GGUFModel{Architecture: "llama", Rows: 1100})
	if prefix, ok := m.Bool("tokenizer.ggml.add_space_prefix"); !ok || prefix || len(warnings) > 0 {
		t.Errorf("%v %v %q", prefix, ok, warnings)
	}
}

// Options of added tokens that GGUF has no place for are said.
func TestToGGUFWarnsOfAddedTokens(t *testing.T) {
	for name, change := range map[string]func(a *addedToken){"lstrip": func(a *addedToken) { a.LStrip = true },
		"rstrip": func(a *addedToken) { a.RStrip = true }, "single_word": func(a *addedToken) { a.SingleWord = true },
		"none": func(*addedToken) {}} {
		for _, special := range []bool{true, false} {
			var list []addedToken
			fields := plainAdded(t, "qwen2")
			if err := json.Unmarshal(fields["added_tokens"], &list); err != nil {
				t.Fatal(err)
			}
			list[len(list)-1].Special = special
			change(&list[len(list)-1])
			fields["added_tokens"] = toJSON(list)
			_, warnings := written(t, patched(t, "qwen2", fields), GGUFModel{Architecture: "qwen2", Rows: 700})
			if said := len(warnings) == 1 && strings.Contains(warnings[0], "added token"); said != (name != "none") {
				t.Errorf("%s, special %t: %q", name, special, warnings)
			}
		}
	}
}

// What GGUF cannot say is refused.
func TestToGGUFRefuses(t *testing.T) {
	pattern := []byte(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"[a-c]+|[^a-c]+"},` +
		`"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`)
	around := []byte(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},` +
		`{"SpecialToken":{"id":"</s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{` +
		`"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]},"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}}`)
	for name, c := range map[string]struct {
		file  string
		patch map[string]json.RawMessage
		want  string
	}{
		"unknown pattern": {"gpt2", map[string]json.RawMessage{"pre_tokenizer": pattern}, "GGUF has no name"},
		"two tokens":      {"scored", map[string]json.RawMessage{"post_processor": around}, "post_processor"},
		"unigram":         {"unigram", nil, "not BPE"},
		"missing merges": {"scored", map[string]json.RawMessage{"model": fewerMerges(t, "scored")},
			"merges"},
		"normalizer": {"scored", map[string]json.RawMessage{"normalizer": []byte(`{"type":"Lowercase"}`)}, "other ids"},
	} {
		_, _, err := ToGGUF(patched(t, c.file, c.patch), GGUFModel{Architecture: "llama", Rows: 1200})
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ToGGUF(fstest.MapFS{}, GGUFModel{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, _, err := ToGGUF(fstest.MapFS{fileName: {Data: []byte("{")}}, GGUFModel{}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// fewerMerges returns a model without its last merges, whose tokens stay.
func fewerMerges(t *testing.T, name string) json.RawMessage {
	t.Helper()
	var model map[string]json.RawMessage
	var merges []json.RawMessage
	err := json.Unmarshal(patchedFields(t, name, nil)["model"], &model)
	if err == nil {
		err = json.Unmarshal(model["merges"], &merges)
	}
	if err != nil {
		t.Fatal(err)
	}
	model["merges"] = toJSON(merges[:len(merges)-3])
	return toJSON(model)
}
