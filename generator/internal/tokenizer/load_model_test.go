package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRefusedModels(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m map[string]any)
		want   error
		names  string
	}{
		"dropout": {func(m map[string]any) { m["dropout"] = 0.1 }, ErrUnsupported, "dropout"},
		"prefix": {func(m map[string]any) { m["continuing_subword_prefix"] = "##" },
			ErrUnsupported, "continuing_subword_prefix"},
		"suffix": {func(m map[string]any) { m["end_of_word_suffix"] = "</w>" },
			ErrUnsupported, "end_of_word_suffix"},
		"byte_fallback":   {func(m map[string]any) { m["byte_fallback"] = true }, ErrUnsupported, "byte_fallback"},
		"option":          {func(m map[string]any) { m["new"] = true }, ErrUnsupported, "new"},
		"three parts":     {func(m map[string]any) { m["merges"] = []string{"a b c"} }, ErrInvalid, "a b c"},
		"one part":        {func(m map[string]any) { m["merges"] = []string{"a"} }, ErrInvalid, "merge"},
		"three in a list": {func(m map[string]any) { m["merges"] = [][]string{{"a", "b", "c"}} }, ErrInvalid, "merge"},
		"number":          {func(m map[string]any) { m["merges"] = []int{1} }, ErrInvalid, "merges"},
		"left unknown":    {func(m map[string]any) { m["merges"] = []string{"qqq b"} }, ErrInvalid, "qqq"},
		"right unknown":   {func(m map[string]any) { m["merges"] = []string{"b qqq"} }, ErrInvalid, "qqq"},
		"result unknown":  {func(m map[string]any) { m["merges"] = []string{"q q"} }, ErrInvalid, `"qq"`},
		"id twice":        {func(m map[string]any) { m["vocab"].(map[string]any)["qq"] = 0 }, ErrInvalid, "id 0"},
		"negative id":     {func(m map[string]any) { m["vocab"].(map[string]any)["qq"] = -1 }, ErrInvalid, "qq"},
		"huge id":         {func(m map[string]any) { m["vocab"].(map[string]any)["qq"] = maxVocab }, ErrInvalid, "qq"},
		"fraction":        {func(m map[string]any) { m["vocab"].(map[string]any)["qq"] = 700.5 }, ErrInvalid, "vocab"},
		"byte and unk_token missing": {func(m map[string]any) {
			delete(m["vocab"].(map[string]any), "q")
			m["unk_token"] = "<unk>"
		}, ErrUnsupported, "0x71"},
	} {
		t.Run(name, func(t *testing.T) {
			var file struct{ Model map[string]any }
			readJSON(t, "testdata/gpt2.json", &file)
			c.change(file.Model)
			model, err := json.Marshal(file.Model)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load(patched(t, "gpt2", patch("model", string(model))))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
}

func TestRefusedFamilies(t *testing.T) {
	sequence := func(decoders string) string { return `{"type":"Sequence","decoders":[` + decoders + `]}` }
	const replace, strip = `{"type":"Replace","pattern":{"String":"▁"},"content":" "}`,
		`{"type":"Strip","content":" ","start":1,"stop":0}`
	const bytes, fuse = `{"type":"ByteFallback"}`, `{"type":"Fuse"}`
	for name, c := range map[string]struct {
		tokenizer, field, value string
		want                    error
		names                   string
	}{
		"normalizer": {"llama2", "normalizer", `{"type":"Nmt"}`, ErrUnsupported, "Nmt"},
		"in a sequence": {"llama2", "normalizer", `{"type":"Sequence","normalizers":[{"type":"Nmt"}]}`,
			ErrUnsupported, "Nmt"},
		"NFC option": {"qwen2", "normalizer", `{"type":"NFC","new":1}`, ErrUnsupported, "new"},
		"Prepend option": {"llama2", "normalizer", `{"type":"Prepend","prepend":"_","new":1}`,
			ErrUnsupported, "new"},
		"Replace regex": {"llama2", "normalizer", `{"type":"Replace","pattern":{"Regex":"a b"},"content":"_"}`,
			ErrUnsupported, "a b"},
		"Replace bad regex": {"llama2", "normalizer", `{"type":"Replace","pattern":{"Regex":"("},"content":"_"}`,
			ErrUnsupported, "("},
		"Replace regex in a decoder": {"llama2", "decoder", sequence(
			`{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"_"},` + bytes), ErrUnsupported, "Regex"},
		"Replace nothing": {"llama2", "normalizer", `{"type":"Replace","pattern":{"String":""},"content":"_"}`,
			ErrInvalid, "no pattern"},
		"Replace by nothing": {"llama2", "normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":""}`,
			ErrUnsupported, "nothing"},
		"growth": {"llama2", "normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":"` +
			strings.Repeat("b", maxGrowth+1) + `"}`, ErrUnsupported, "4097 times"},
		"growth by a regex": {"llama2", "normalizer", `{"type":"Replace","pattern":{"Regex":"[a]"},"content":"` +
			strings.Repeat("b", maxGrowth+1) + `"}`, ErrUnsupported, "4097 times"},
		"growth by Prepend": {"llama2", "normalizer", `{"type":"Prepend","prepend":"` +
			strings.Repeat("b", maxGrowth) + `"}`, ErrUnsupported, "4097 times"},
		"growth in all": {"llama2", "normalizer", `{"type":"Sequence","normalizers":[` +
			strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 12) + `{"type":"NFKC"}]}`,
			ErrUnsupported, "45056 times"},
		"growth of a map": {"llama2", "normalizer", `{"type":"Precompiled","precompiled_charsmap":"` +
			base64.StdEncoding.EncodeToString(charsmap(strings.Repeat("b", maxGrowth+1), 0)) + `"}`,
			ErrUnsupported, "4097 times"},
		"pre-tokenizer": {"llama2", "pre_tokenizer", `{"type":"Whitespace"}`, ErrUnsupported, "Whitespace"},
		"ByteLevel":     {"llama2", "pre_tokenizer", `{"type":"ByteLevel"}`, ErrUnsupported, "byte_fallback"},
		"replacement": {"mistral", "pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`,
			ErrInvalid, "__"},
		"prepend_scheme": {"mistral", "pre_tokenizer", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"last"}`,
			ErrUnsupported, "last"},
		"Metaspace option": {"mistral", "pre_tokenizer",
			`{"type":"Metaspace","replacement":"▁","new":true}`, ErrUnsupported, "new"},
		"Metaspace contradiction": {"mistral", "pre_tokenizer",
			`{"type":"Metaspace","replacement":"▁","add_prefix_space":false}`, ErrInvalid, "add_prefix_space"},
		"decoder":              {"llama2", "decoder", `{"type":"WordPiece"}`, ErrUnsupported, "WordPiece"},
		"decoder ByteLevel":    {"llama2", "decoder", `{"type":"ByteLevel"}`, ErrUnsupported, "ByteLevel"},
		"decoder for bytes":    {"qwen2", "decoder", sequence(replace + "," + bytes), ErrUnsupported, "2 decoders"},
		"no decoder for bytes": {"qwen2", "decoder", `null`, ErrUnsupported, "0 decoders"},
		"no ByteFallback": {"llama2", "decoder", sequence(replace + "," + fuse + "," + strip),
			ErrUnsupported, "Replace Fuse Strip"},
		"Strip without Fuse": {"llama2", "decoder", sequence(replace + "," + bytes + "," + strip),
			ErrUnsupported, "ByteFallback Strip"},
		"order": {"llama2", "decoder", sequence(bytes + "," + replace),
			ErrUnsupported, "ByteFallback Replace"},
		"Fuse option": {"llama2", "decoder", sequence(bytes + `,{"type":"Fuse","new":1}`),
			ErrUnsupported, "new"},
		"Strip at the end": {"llama2", "decoder",
			sequence(bytes + "," + fuse + `,{"type":"Strip","content":" ","start":1,"stop":1}`),
			ErrUnsupported, "stop 1"},
		"Strip of another": {"llama2", "decoder",
			sequence(bytes + "," + fuse + `,{"type":"Strip","content":"_","start":1,"stop":0}`), ErrUnsupported, `"_"`},
		"two tokens in one": {"qwen2", "added_tokens", `[{"id":700,"content":"\u1e69","normalized":true},` +
			`{"id":701,"content":"s\u0323\u0307","normalized":true}]`, ErrUnsupported, "once normalized"},
		"space once normalized": {"qwen2", "added_tokens", `[{"id":700,"content":"\u2000","normalized":true},` +
			`{"id":701,"content":"x","rstrip":true}]`, ErrUnsupported, "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(patched(t, c.tokenizer, patch(c.field, c.value)))
			named := err != nil && strings.Contains(err.Error(), c.names) && strings.Contains(err.Error(), c.field)
			if !errors.Is(err, c.want) || !named {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
	changes := patch("added_tokens", `[{"id":700,"content":"\u0301","normalized":true}]`)
	changes["normalizer"] = json.RawMessage(`{"type":"StripAccents"}`)
	if _, err := Load(patched(t, "qwen2", changes)); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "empty once normalized") {
		t.Errorf("nothing once normalized: %v", err)
	}
	var file struct{ Model map[string]any }
	readJSON(t, "testdata/llama2.json", &file)
	delete(file.Model["vocab"].(map[string]any), "<0xC3>")
	model, _ := json.Marshal(file.Model)
	_, err := Load(patched(t, "llama2", patch("model", string(model))))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "0xC3") {
		t.Errorf("without a byte: %v", err)
	}
}
