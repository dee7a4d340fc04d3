package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/tiny"
)

// patch returns the patch of one field.
func patch(field, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{field: json.RawMessage(value)}
}

func TestRefused(t *testing.T) {
	split := func(fields string) string {
		return `{"type":"Sequence","pretokenizers":[` +
			`{"type":"Split",` + fields + `},{"type":"ByteLevel","use_regex":false}]}`
	}
	template := func(single, ids string) string {
		return `{"type":"TemplateProcessing","single":[` + single + `],"pair":[],` +
			`"special_tokens":{"B":{"id":"B","ids":[` + ids + `],"tokens":["B"]}}}`
	}
	const a, b = `{"Sequence":{"id":"A","type_id":0}}`, `{"SpecialToken":{"id":"B","type_id":0}}`
	for name, c := range map[string]struct {
		field, value string
		want         error
		names        string
	}{
		"version":       {"version", `"2.0"`, ErrUnsupported, "2.0"},
		"unknown field": {"post_tokenizer", `{}`, ErrUnsupported, "post_tokenizer"},
		"normalizer": {"normalizer", `{"type":"Nmt"}`,
			ErrUnsupported, `normalizer: tokenizer not supported: type "Nmt"`},
		"normalizer no object": {"normalizer", `7`, ErrInvalid, "normalizer"},
		"no decoder":           {"decoder", `null`, ErrUnsupported, "decoder"},
		"decoder":              {"decoder", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"decoder option":       {"decoder", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"no pre-tokenizer":     {"pre_tokenizer", `null`, ErrUnsupported, "pre_tokenizer"},
		"pre-tokenizer":        {"pre_tokenizer", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"empty sequence": {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[]}`,
			ErrUnsupported, "pre_tokenizer"},
		"sequence member": {"pre_tokenizer",
			`{"type":"Sequence","pretokenizers":[{"type":"BertPreTokenizer"},{"type":"ByteLevel"}]}`,
			ErrUnsupported, "BertPreTokenizer"},
		"sequence in sequence": {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Sequence"}]}`,
			ErrUnsupported, "Sequence"},
		"sequence field": {"pre_tokenizer", `{"type":"Sequence","steps":[]}`, ErrUnsupported, "steps"},
		"ByteLevel not last": {"pre_tokenizer",
			`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}`,
			ErrUnsupported, "ByteLevel"},
		"no ByteLevel": {"pre_tokenizer",
			`{"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":false}`,
			ErrUnsupported, "ByteLevel"},
		"ByteLevel option": {"pre_tokenizer", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"behaviour": {"pre_tokenizer", split(`"pattern":{"Regex":"a"},"behavior":"Removed","invert":false`),
			ErrUnsupported, "Removed"},
		"invert": {"pre_tokenizer", split(`"pattern":{"Regex":"a"},"behavior":"Isolated","invert":true`),
			ErrUnsupported, "invert"},
		"string behaviour": {"pre_tokenizer", split(`"pattern":{"String":"a"},"behavior":"Contiguous","invert":false`),
			ErrUnsupported, "Contiguous"},
		"empty string": {"pre_tokenizer", split(`"pattern":{"String":""},"behavior":"Isolated","invert":false`),
			ErrInvalid, "no pattern"},
		"no pattern": {"pre_tokenizer", split(`"behavior":"Isolated","invert":false`),
			ErrInvalid, "pattern"},
		"pattern": {"pre_tokenizer", split(`"pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false`),
			ErrUnsupported, `\\w`},
		"post-processor":        {"post_processor", `{"type":"BertProcessing"}`, ErrUnsupported, "BertProcessing"},
		"post-processor option": {"post_processor", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"two templates": {"post_processor",
			`{"type":"Sequence","processors":[` + template(a, "1") + "," + template(a, "1") + `]}`,
			ErrUnsupported, "TemplateProcessing"},
		"no sequence":    {"post_processor", template(b, "1"), ErrUnsupported, "0 Sequences"},
		"sequence twice": {"post_processor", template(a+","+a, "1"), ErrUnsupported, "2 Sequences"},
		"sequence B": {"post_processor", template(`{"Sequence":{"id":"B","type_id":0}}`, "1"),
			ErrInvalid, "single"},
		"empty piece": {"post_processor", template(`{}`, "1"), ErrInvalid, "single"},
		"unknown special token": {"post_processor", template(`{"SpecialToken":{"id":"C","type_id":0}},`+a, "1"),
			ErrInvalid, "C"},
		"template id":          {"post_processor", template(b+","+a, "615"), ErrInvalid, "615"},
		"template negative id": {"post_processor", template(b+","+a, "-1"), ErrInvalid, "-1"},
		"added id taken":       {"added_tokens", `[{"id":3,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added second id":      {"added_tokens", `[{"id":700,"content":"!"}]`, ErrInvalid, `"!"`},
		"added negative id":    {"added_tokens", `[{"id":-1,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added huge id":        {"added_tokens", `[{"id":1048576,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added past int32":     {"added_tokens", `[{"id":4294967296,"content":"<x>"}]`, ErrInvalid, "id"},
		"added fraction":       {"added_tokens", `[{"id":700.5,"content":"<x>"}]`, ErrInvalid, "id"},
		"added without id":     {"added_tokens", `[{"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added empty":          {"added_tokens", `[{"id":700,"content":""}]`, ErrInvalid, "700"},
		"added twice": {"added_tokens", `[{"id":700,"content":"<x>"},{"id":700,"content":"<x>"}]`,
			ErrInvalid, "<x>"},
		"added option": {"added_tokens", `[{"id":700,"content":"<x>","new":1}]`, ErrUnsupported, "new"},
		"added space beside strip": {"added_tokens",
			`[{"id":700,"content":"<x>","rstrip":true},{"id":701,"content":" y"}]`, ErrUnsupported, `" y"`},
		"no model": {"model", `null`, ErrUnsupported, "model"},
		"model":    {"model", `{"type":"Unigram"}`, ErrUnsupported, "Unigram"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(patched(t, "gpt2", patch(c.field, c.value)))
			named := err != nil && strings.Contains(err.Error(), c.names) && strings.Contains(err.Error(), fileName)
			if !errors.Is(err, c.want) || !named {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
}

// transformers writes truncation and padding after a padded call. Neither changes a prompt's tokens.
func TestTruncationAndPadding(t *testing.T) {
	const text = "First Citizen: Before we proceed any further, hear me speak."
	want, err := load(t, "gpt2", nil).Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]string{
		"truncation": `{"direction":"Right","max_length":4,"strategy":"LongestFirst","stride":0}`,
		"padding": `{"strategy":{"Fixed":64},"direction":"Left","pad_to_multiple_of":null,"pad_id":0,` +
			`"pad_type_id":0,"pad_token":"!"}`,
	} {
		tok, err := Load(patched(t, "gpt2", patch(field, value)))
		if err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		if got, err := tok.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", field, got, err, want)
		}
	}
}

// TestTemplateNamesNoToken tries a special token whose id is in range and has no token.
func TestTemplateNamesNoToken(t *testing.T) {
	changes := patch("added_tokens", `[{"id":700,"content":"<x>"}]`)
	changes["post_processor"] = json.RawMessage(`{"type":"TemplateProcessing",` +
		`"single":[{"SpecialToken":{"id":"B","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],` +
		`"special_tokens":{"B":{"id":"B","ids":[650],"tokens":["B"]}}}`)
	_, err := Load(patched(t, "gpt2", changes))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "650") {
		t.Error(err)
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"empty":         {"", ErrInvalid},
		"no object":     {"[]", ErrInvalid},
		"cut":           {`{"version":"1.0"`, ErrInvalid},
		"two values":    {`{}{}`, ErrInvalid},
		"not UTF-8":     {"{\"version\":\"\xff\"}", ErrInvalid},
		"empty object":  {`{}`, ErrUnsupported},
		"deep":          {`{"model":` + strings.Repeat("[", 20000), ErrInvalid},
		"past 64 MiB":   {`{}` + strings.Repeat(" ", maxFile), ErrInvalid},
		"unicode space": {"{}\u00a0", ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(fstest.MapFS{fileName: {Data: []byte(c.data)}})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), fileName) {
		t.Errorf("no file: %v", err)
	}
}

// TestModelWithoutType loads a model without a type, as in GPT-2's file.
func TestModelWithoutType(t *testing.T) {
	var file struct{ Model map[string]json.RawMessage }
	readJSON(t, "testdata/gpt2.json", &file)
	delete(file.Model, "type")
	model, err := json.Marshal(file.Model)
	if err != nil {
		t.Fatal(err)
	}
	const text = "Speak, speak."
	want, err1 := load(t, "gpt2", nil).Encode(text)
	got, err2 := load(t, "gpt2", patch("model", string(model))).Encode(text)
	if err1 != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, other := range []string{`{"vocab":[["a",0]]}`,
		`{"vocab":{"a":0},"unk_token":"a","max_input_chars_per_word":100,"continuing_subword_prefix":"##"}`} {
		_, err := Load(patched(t, "gpt2", patch("model", other)))
		if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// FuzzLoad checks that no file makes Load panic, and that a tokenizer that loads can encode.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","added_tokens":[{"id":1,"content":"a"}],"decoder":{"type":"ByteLevel"},` +
		`"model":{"type":"BPE","vocab":{"a":0},"merges":["a a",["a","b"]]}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Sequence","pretokenizers":[` +
		`{"type":"Split","pattern":{"Regex":"(?i:'s)|\\p{L}+"},"behavior":"Isolated"}]}}`))
	f.Add([]byte(`{"version":"1.0","decoder":{"type":"Metaspace","replacement":"_"},"model":{"type":"Unigram",` +
		`"unk_id":0,"vocab":[["u",0],["a",-1]],"byte_fallback":true},"normalizer":{"type":"Strip"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Load(fstest.MapFS{fileName: {Data: data}})
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("neither ErrInvalid nor ErrUnsupported: %v", err)
			}
			return
		}
		if ids, err := tok.Encode("Hello"); err != nil || slices.Max(append(ids, 0)) >= int32(tok.Vocab()) {
			t.Errorf("%v, %v with %d ids", ids, err, tok.Vocab())
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(tiny.Files); err != nil {
			b.Fatal(err)
		}
	}
}
