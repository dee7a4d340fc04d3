package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"reel/generator/tiny"
)

// TestEmbeddedModel checks the vectors that transformers made beside the
// embedded model.
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

func TestTokenText(t *testing.T) {
	tok := load(t, "gpt2", nil)
	for content, want := range map[string]string{"Ġunreached": " unreached", "<|end|>": "<|end|>", "Ċ": "\n", "Ã": "\uFFFD", "¡": "\uFFFD"} {
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

func TestNotUTF8(t *testing.T) {
	tok := load(t, "gpt2", nil)
	for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} {
		if ids, err := tok.Encode(text); !errors.Is(err, ErrNotUTF8) {
			t.Errorf("Encode(%q) = %v, %v", text, ids, err)
		}
	}
}

// TestHeld feeds a character byte by byte: nothing shows until it is whole,
// then all of it.
func TestHeld(t *testing.T) {
	tok := load(t, "gpt2", nil)
	d := tok.NewDecoder(nil)
	for i, b := range []byte("💩") {
		id, _ := tok.ID(string(charOf[b]))
		got, want, held := d.Push(id), "", i+1
		if i == 3 {
			want, held = "💩", 0
		}
		if got != want || d.Held() != held {
			t.Errorf("byte %d: %q with %d held, want %q with %d", i, got, d.Held(), want, held)
		}
	}
	id, _ := tok.ID(string(charOf[0xE2]))
	if d.Push(id) != "" || d.Flush() != "\uFFFD" || d.Held() != 0 || d.Flush() != "" {
		t.Error("Flush does not end the text")
	}
}

// TestStaleCandidates merges a pair away while a candidate for its right part
// waits: bc must neither apply nor stand between c and de.
func TestStaleCandidates(t *testing.T) {
	c := &bpeConfig{Vocab: map[string]int32{}}
	for b, r := range charOf {
		c.Vocab[string(r)] = int32(b)
	}
	for i, m := range []mergePair{{"a", "b"}, {"b", "c"}, {"d", "e"}, {"c", "de"}} {
		c.Merges = append(c.Merges, m)
		c.Vocab[m[0]+m[1]] = int32(256 + i)
	}
	m, err := newBPE(c)
	if err != nil {
		t.Fatal(err)
	}
	e := m.encoder(newPacer(), nil, 0)
	e.encode("abcde")
	if want := []int32{256, 259}; !slices.Equal(e.out, want) {
		t.Errorf("%v, want %v", e.out, want)
	}
}

// TestLongPieces encodes pieces without an end. Were the merges quadratic, it
// would take minutes.
func TestLongPieces(t *testing.T) {
	tok := load(t, "llama3", nil)
	for _, unit := range []string{"a", "the", "é", " ", "\n", "漢", "!?", "\u0301", "<", "<|end", "'"} {
		text := strings.Repeat(unit, 270_000/len(unit))
		ids, err := tok.Encode(text)
		if err != nil || decodeAll(tok, ids) != text {
			t.Errorf("%q repeated does not come back: %v", unit, err)
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
			t.Error("another result beside others")
		}
	}
}

// patch makes the patch of one field.
func patch(field, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{field: json.RawMessage(value)}
}

func TestRefused(t *testing.T) {
	split := func(fields string) string {
		return `{"type":"Sequence","pretokenizers":[{"type":"Split",` + fields + `},{"type":"ByteLevel","use_regex":false}]}`
	}
	template := func(single, ids string) string {
		return `{"type":"TemplateProcessing","single":[` + single + `],"pair":[],"special_tokens":{"B":{"id":"B","ids":[` + ids + `],"tokens":["B"]}}}`
	}
	const a, b = `{"Sequence":{"id":"A","type_id":0}}`, `{"SpecialToken":{"id":"B","type_id":0}}`
	for name, c := range map[string]struct {
		field, value string
		want         error
		names        string
	}{
		"version":               {"version", `"2.0"`, ErrUnsupported, "2.0"},
		"truncation":            {"truncation", `{"max_length":5}`, ErrUnsupported, "truncation"},
		"padding":               {"padding", `{"length":5}`, ErrUnsupported, "padding"},
		"unknown field":         {"post_tokenizer", `{}`, ErrUnsupported, "post_tokenizer"},
		"normalizer":            {"normalizer", `{"type":"NFD"}`, ErrUnsupported, `normalizer: tokenizer not supported: type "NFD"`},
		"normalizer no object":  {"normalizer", `7`, ErrInvalid, "normalizer"},
		"no decoder":            {"decoder", `null`, ErrUnsupported, "decoder"},
		"decoder":               {"decoder", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"decoder option":        {"decoder", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"no pre-tokenizer":      {"pre_tokenizer", `null`, ErrUnsupported, "pre_tokenizer"},
		"pre-tokenizer":         {"pre_tokenizer", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"empty sequence":        {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[]}`, ErrUnsupported, "pre_tokenizer"},
		"sequence member":       {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"ByteLevel"}]}`, ErrUnsupported, "Digits"},
		"sequence in sequence":  {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Sequence"}]}`, ErrUnsupported, "Sequence"},
		"sequence field":        {"pre_tokenizer", `{"type":"Sequence","steps":[]}`, ErrUnsupported, "steps"},
		"ByteLevel not last":    {"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]}`, ErrUnsupported, "ByteLevel"},
		"no ByteLevel":          {"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":false}`, ErrUnsupported, "ByteLevel"},
		"ByteLevel option":      {"pre_tokenizer", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"behaviour":             {"pre_tokenizer", split(`"pattern":{"Regex":"a"},"behavior":"Removed","invert":false`), ErrUnsupported, "Removed"},
		"invert":                {"pre_tokenizer", split(`"pattern":{"Regex":"a"},"behavior":"Isolated","invert":true`), ErrUnsupported, "invert"},
		"string pattern":        {"pre_tokenizer", split(`"pattern":{"String":"a"},"behavior":"Isolated","invert":false`), ErrUnsupported, "String"},
		"no pattern":            {"pre_tokenizer", split(`"behavior":"Isolated","invert":false`), ErrInvalid, "pattern"},
		"pattern":               {"pre_tokenizer", split(`"pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false`), ErrUnsupported, `\\w`},
		"post-processor":        {"post_processor", `{"type":"BertProcessing"}`, ErrUnsupported, "BertProcessing"},
		"post-processor option": {"post_processor", `{"type":"ByteLevel","new":1}`, ErrUnsupported, "new"},
		"two templates":         {"post_processor", `{"type":"Sequence","processors":[` + template(a, "1") + "," + template(a, "1") + `]}`, ErrUnsupported, "TemplateProcessing"},
		"no sequence":           {"post_processor", template(b, "1"), ErrUnsupported, "0 Sequences"},
		"sequence twice":        {"post_processor", template(a+","+a, "1"), ErrUnsupported, "2 Sequences"},
		"sequence B":            {"post_processor", template(`{"Sequence":{"id":"B","type_id":0}}`, "1"), ErrInvalid, "single"},
		"empty piece":           {"post_processor", template(`{}`, "1"), ErrInvalid, "single"},
		"unknown special token": {"post_processor", template(`{"SpecialToken":{"id":"C","type_id":0}},`+a, "1"), ErrInvalid, "C"},
		"template id":           {"post_processor", template(b+","+a, "615"), ErrInvalid, "615"},
		"template negative id":  {"post_processor", template(b+","+a, "-1"), ErrInvalid, "-1"},
		"added id taken":        {"added_tokens", `[{"id":3,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added second id":       {"added_tokens", `[{"id":700,"content":"!"}]`, ErrInvalid, `"!"`},
		"added negative id":     {"added_tokens", `[{"id":-1,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added huge id":         {"added_tokens", `[{"id":1048576,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added past int32":      {"added_tokens", `[{"id":4294967296,"content":"<x>"}]`, ErrInvalid, "id"},
		"added fraction":        {"added_tokens", `[{"id":700.5,"content":"<x>"}]`, ErrInvalid, "id"},
		"added without id":      {"added_tokens", `[{"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added empty":           {"added_tokens", `[{"id":700,"content":""}]`, ErrInvalid, "700"},
		"added twice":           {"added_tokens", `[{"id":700,"content":"<x>"},{"id":700,"content":"<x>"}]`, ErrInvalid, "<x>"},
		"added option":          {"added_tokens", `[{"id":700,"content":"<x>","new":1}]`, ErrUnsupported, "new"},
		"added space beside strip": {"added_tokens", `[{"id":700,"content":"<x>","rstrip":true},{"id":701,"content":" y"}]`,
			ErrUnsupported, `" y"`},
		"no model": {"model", `null`, ErrUnsupported, "model"},
		"model":    {"model", `{"type":"Unigram"}`, ErrUnsupported, "Unigram"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(patched(t, "gpt2", patch(c.field, c.value)))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), fileName) {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
}

// TestTemplateNamesNoToken has an id below the highest that no token has.
func TestTemplateNamesNoToken(t *testing.T) {
	changes := patch("added_tokens", `[{"id":700,"content":"<x>"}]`)
	changes["post_processor"] = json.RawMessage(`{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"B","type_id":0}},` +
		`{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"B":{"id":"B","ids":[650],"tokens":["B"]}}}`)
	if _, err := Load(patched(t, "gpt2", changes)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "650") {
		t.Error(err)
	}
}

func TestRefusedModels(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m map[string]any)
		want   error
		names  string
	}{
		"dropout":         {func(m map[string]any) { m["dropout"] = 0.1 }, ErrUnsupported, "dropout"},
		"prefix":          {func(m map[string]any) { m["continuing_subword_prefix"] = "##" }, ErrUnsupported, "continuing_subword_prefix"},
		"suffix":          {func(m map[string]any) { m["end_of_word_suffix"] = "</w>" }, ErrUnsupported, "end_of_word_suffix"},
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
		"byte missing":    {func(m map[string]any) { delete(m["vocab"].(map[string]any), "q") }, ErrUnsupported, "0x71"},
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

// TestRefusedPatterns has what Oniguruma and regexp2 read differently, or what
// could take exponential time.
func TestRefusedPatterns(t *testing.T) {
	for pattern, names := range map[string]string{
		``: "nothing", `a*`: "nothing", `a|`: "nothing", `(?!a)`: "nothing", `(a?|b)`: "nothing", `a{0,3}`: "nothing",
		`(a+)+`: "nested", `(?:a|b?)*c`: "nested", `((a{2}))*b`: "nested", `(?!a)*b`: "nested",
		`a++`: "++", `a??b`: "??", `a*+b`: "*+", `a{2}{3}`: "{2}{", `a{2}?`: "?", `a{,3}`: "{,3", `a{+1}`: "{+1", `a{3,2}`: "{3,2", `a{1024}`: "{1024", `a{2`: "{2",
		`\w`: `\\w`, `\d`: `\\d`, `\b`: `\\b`, `\h`: `\\h`, `\x41`: `\\x`, `\`: `\\`, `(a)\1`: `\\1`, `\é`: `\\é`,
		`\p{Han}`: `\\p{Han}`, `\p{^L}`: `\\p{^L}`, `\pL`: `\\pL`, `\p{L`: `\\p{L`, `\p{L Lu}`: `\\p{L`, `[\P{L}]`: `\\P{L}`,
		`.`: `"."`, `^a`: `"^"`, `a$`: `"$"`, `+`: `"+"`, `{`: `"{"`, `a)`: `")"`, `(a`: "without )", `[a`: "without ]", `]`: `"]"`,
		`[]a]`: "[]", `[a[b]]`: "[[", `[[:alpha:]]`: "[[", `[a&&b]`: "[&", `[-a]`: "[-", `[a-]`: "[-", `[z-a]`: "z-a", `[a-\s]`: `a-`, `[a-b-c]`: "[-",
		`(?<n>a)`: "(?<n", `(?<=a)b`: "(?<=", `(?>a)`: "(?>a", `(?i)a`: "(?i)", `(?x:a)`: "(?x:",
		`(?i:é)`: "é", `(?i:ss)`: "ss", `(?i:aFi)`: "fi", `(?i:[ab])`: "(?i:", `(?i:\p{Lu})`: `\\p`,
		strings.Repeat("(", 17) + "a" + strings.Repeat(")", 17): "deeper",
		strings.Repeat("a", maxPattern+1):                       "longer",
	} {
		_, err := newPattern(pattern)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(strings.SplitN(err.Error(), ErrUnsupported.Error(), 2)[1], names) {
			t.Errorf("%.40q: %v, want one naming %q", pattern, err, names)
		}
	}
}

// FuzzEncode holds decode(encode(x)) = x for text without special tokens.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "Hello  world", "'ſ 12345\r\n\t x", "👩‍👩‍👧‍👦é", "plainer word  <left> ab"} {
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

// FuzzDecoder holds the stream against the whole, and valid text against itself.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{"", "\xf0\x9f\x92\xa9", "\xe2\x82\xe2\x82\xac\xff", "\xed\xa0\x80", "a\xf4\x90\x80\x80"} {
		f.Add([]byte(s))
	}
	tok := load(f, "gpt2", nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, rest := lossy(data)
		whole += flush(rest)
		d, streamed := tok.NewDecoder(nil), ""
		for _, b := range data {
			id, _ := tok.ID(string(charOf[b]))
			piece := d.Push(id)
			if streamed += piece; !utf8.ValidString(piece) || d.Held() > 3 {
				t.Fatalf("%q: piece %q, %d held", data, piece, d.Held())
			}
		}
		if streamed += d.Flush(); streamed != whole {
			t.Errorf("%q: streamed %q, whole %q", data, streamed, whole)
		}
		if utf8.Valid(data) && whole != string(data) {
			t.Errorf("%q became %q", data, whole)
		}
	})
}

// FuzzLoad shows that no file panics, and that one which loads works.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","added_tokens":[{"id":1,"content":"a"}],"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0},"merges":["a a",["a","b"]]}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s)|\\p{L}+"},"behavior":"Isolated"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Load(fstest.MapFS{fileName: {Data: data}})
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
				t.Errorf("no kind: %v", err)
			}
			return
		}
		if ids, err := tok.Encode("Hello"); err != nil || slices.Max(append(ids, 0)) >= int32(tok.Vocab()) {
			t.Errorf("%v, %v with %d ids", ids, err, tok.Vocab())
		}
	})
}

// FuzzPattern shows that what translate accepts, regexp2 compiles and covers
// the text with.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{gpt2Pattern, `(?i:'s|k)|[^\s\p{L}a-z]{1,3}|\P{N}(?=x)`, `[!-/:-~]`} {
		f.Add(s, "It's 12 x")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		p, err := newPattern(source)
		if err != nil || !utf8.ValidString(text) || len(source) > 100 || len(text) > 30 {
			if err != nil && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%q: %v", source, err)
			}
			return
		}
		pieces, err := p.pieces(text)
		if err != nil || strings.Join(pieces, "") != text || slices.Contains(pieces, "") {
			t.Errorf("%q cuts %q into %q, %v", source, text, pieces, err)
		}
	})
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
	prose := strings.Repeat("Before we proceed any further, hear me speak. You are all resolved rather to die than to famish?\n", 928)
	for _, name := range []string{"gpt2", "llama3"} {
		b.Run(name+"/prose", func(b *testing.B) { benchmarkEncode(b, name, prose[:90_000]) })
		b.Run(name+"/one_word", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat("the", 30_000)) })
		b.Run(name+"/spaces", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat(" ", 90_000)) })
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(tiny.Files); err != nil {
			b.Fatal(err)
		}
	}
}
