package tokenizer

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestNFC holds form C against what tokenizers makes of every character that
// decomposes, composes or moves, in order and at random.
func TestNFC(t *testing.T) {
	var vectors struct {
		Moving string
		Texts  [][2]string
	}
	readJSON(t, "testdata/nfc.json", &vectors)
	if len(vectors.Texts) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Texts {
		if got := nfc(newPacer(), v[0]); got != v[1] {
			t.Errorf("nfc(%.200q) = %.200q, want %.200q", v[0], got, v[1])
		}
	}
	moving := map[rune]bool{}
	for _, r := range vectors.Moving {
		moving[r] = true
	}
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) || decomposition(r, norm.NFD.PropertiesString(string(r))) != "" {
			continue
		}
		if class := decompose(newPacer(), "a"+string(r))[1].class; class > 0 != moving[r] {
			t.Errorf("%U has class %d", r, class)
		}
	}
}

// FuzzNFC holds form C against the library's, where that is the standard's: in
// texts without long runs of marks and without characters after Unicode 9.
func FuzzNFC(f *testing.F) {
	for _, s := range []string{"", "e\u0301\u0327", "\u1100\u1161\u11a8", "\u212b\u0344a", "\u0915\u093c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		got := nfc(newPacer(), text)
		if again := nfc(newPacer(), got); again != got {
			t.Errorf("nfc(%q) = %q, and again %q", text, got, again)
		}
		if len(text) <= 30 && !strings.ContainsFunc(norm.NFD.String(text), isAfter9) && got != norm.NFC.String(text) {
			t.Errorf("nfc(%q) = %q, the library has %q", text, got, norm.NFC.String(text))
		}
		if len(text) > 3*len(got) {
			t.Errorf("%q shrinks to %q", text, got)
		}
	})
}

// TestMaxTokenBytes bounds text before it is normalised.
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

// TestModelWithoutType loads a model as GPT-2's file has it.
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
	for _, other := range []string{`{"vocab":[["a",0]]}`, `{"vocab":{"a":0},"unk_token":"a","max_input_chars_per_word":100,"continuing_subword_prefix":"##"}`} {
		if _, err := Load(patched(t, "gpt2", patch("model", other))); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// joiner is what the library's form C puts into a long run of marks.
const joiner = "\u034f"

// TestLongRunsOfMarks shows why the library's form C is not used.
func TestLongRunsOfMarks(t *testing.T) {
	text := "é" + strings.Repeat("\u0308", 40)
	if got := nfc(newPacer(), text); got != text || !strings.Contains(norm.NFC.String(text), joiner) {
		t.Errorf("%q became %q", text, got)
	}
}

// TestSpaceAtTheBeginning streams: the model's decoder drops the space that its
// encoder has put in front of a text, and no other.
func TestSpaceAtTheBeginning(t *testing.T) {
	tok := load(t, "llama2", nil)
	begin, _ := tok.ID("<s>")
	ids, err := tok.Encode("the theatre")
	if err != nil || ids[0] != begin {
		t.Fatal(ids, err)
	}
	for name, c := range map[string]struct {
		after []int32
		want  string
	}{
		"nothing before":       {nil, "the theatre"},
		"special token before": {[]int32{begin, begin}, "the theatre"},
		"unknown id before":    {[]int32{-1, 1 << 20}, "the theatre"},
		"text before":          {ids, " the theatre"},
		"a space before":       {[]int32{begin, tok.ids["▁"]}, " the theatre"},
	} {
		t.Run(name, func(t *testing.T) {
			d, got := tok.NewDecoder(c.after), ""
			for _, id := range ids {
				got += d.Push(id)
			}
			if got += d.Flush(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestByteFallback streams characters that are no tokens.
func TestByteFallback(t *testing.T) {
	tok := load(t, "llama2", nil)
	push := func(d *Decoder, raw string) (text string) {
		for _, b := range []byte(raw) {
			text += d.Push(tok.ids[byteContent(b)])
		}
		return text
	}
	d := tok.NewDecoder(nil)
	if got := push(d, " \xf0\x9f\x92"); got != "" || d.Held() != 3 {
		t.Errorf("%q with %d bytes held", got, d.Held())
	}
	if got := push(d, "\xa9"); got != "💩" || d.Held() != 0 {
		t.Errorf("%q with %d bytes held", got, d.Held())
	}
	// tokenizers makes three U+FFFD of these bytes: it spoils the é.
	if got := push(d, "é\xe2") + d.Push(tok.ids["▁the"]); got != "é\uFFFD the" {
		t.Errorf("%q", got)
	}
	if got := push(d, "\xc3") + d.Flush(); got != "\uFFFD" {
		t.Errorf("%q", got)
	}
}

// TestWords encodes texts whole: the words' ids, one after another, are the same.
func TestWords(t *testing.T) {
	for _, name := range []string{"llama2", "mistral", "phi3"} {
		tok := load(t, name, nil)
		if tok.model.wordStart != space {
			t.Errorf("%s has no words", name)
		}
		random := rand.New(rand.NewPCG(1, 2))
		parts := strings.Fields("the ▁ ▁▁ ▁▁▁ a é \xe6\xbc\xa2 \n th ing . \u2580 \u2582")
		for range 500 {
			text := ""
			for range random.IntN(12) {
				text += parts[random.IntN(len(parts))] + []string{"", " ", "  "}[random.IntN(3)]
			}
			cut, err1 := tok.Encode(text)
			tok.model.wordStart = ""
			whole, err2 := tok.Encode(text)
			tok.model.wordStart = space
			if err1 != nil || err2 != nil || !slices.Equal(cut, whole) {
				t.Fatalf("%s: %q is %v by words and %v whole", name, text, cut, whole)
			}
		}
	}
	// Where merges join words, the text stays whole: the vectors have such cases too.
	model := bpeConfig{Vocab: map[string]int32{space: 0}, Merges: []mergePair{{"a", "▁b"}}}
	if wordStart(&model) != "" || load(t, "across", nil).model.wordStart != "" {
		t.Error("words where merges reach over their ends")
	}
	model.Merges[0] = mergePair{"▁", "▁b"}
	if wordStart(&model) != space {
		t.Error("no words where merges start with the space")
	}
	if model.IgnoreMerges = true; wordStart(&model) != "" {
		t.Error("words where a piece is looked up whole")
	}
	if wordStart(&bpeConfig{}) != "" {
		t.Error("words where the space is no token")
	}
}

// FuzzFamilies holds decode(encode(x)) = x, or x in form C, for every family.
func FuzzFamilies(f *testing.F) {
	for _, s := range []string{"", "Hello  world", "  12345\r\n\t x", "👩‍👩‍👧‍👦é", "▁a ▁", "e\u0327\u0301", "<s> x"} {
		f.Add(s)
	}
	tokenizers := map[string]*Tokenizer{}
	for _, name := range []string{"llama2", "mistral", "phi3", "across", "qwen2"} {
		tokenizers[name] = load(f, name, patch("added_tokens", "[]"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range tokenizers {
			ids, err := tok.EncodeRendered(text)
			if (err == nil) != utf8.ValidString(text) {
				t.Fatalf("%s: Encode(%q): %v", name, text, err)
			}
			want := strings.ReplaceAll(text, space, " ")
			switch {
			case name == "qwen2":
				want = nfc(newPacer(), text)
			case name == "mistral" && strings.HasPrefix(want, " "):
				want = want[1:] // Metaspace puts none in front of a space
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

// TestLongTexts encodes 270 kB without a space, and of spaces, for every family.
// Were anything quadratic, it would take minutes.
func TestLongTexts(t *testing.T) {
	bytes := 270_000
	if testing.Short() {
		bytes = 30_000 // under the race detector
	}
	for _, name := range []string{"llama2", "across", "qwen2"} {
		tok := load(t, name, nil)
		for _, unit := range []string{"a", "the", "e\u0301", " ", "\n", "漢", "💩", "\u0301", "▁", "<s", "<|end", "\u1100"} {
			text := strings.Repeat(unit, bytes/len(unit))
			want := strings.ReplaceAll(text, space, " ")
			if name == "qwen2" {
				want = nfc(newPacer(), text)
			}
			ids, err := tok.Encode(text)
			if err != nil || decodeAll(tok, ids) != want {
				t.Errorf("%s: %q repeated does not come back: %v", name, unit, err)
			}
		}
	}
}

// FuzzScanners holds the scanners of published patterns against regexp2.
func FuzzScanners(f *testing.F) {
	for _, s := range []string{"it's IT'S 'ſ'S 'll'LL 'x 're're'r", "a  b\n \n\n  c \r\n", "12345 1234 ١٢٣½x", " !?\n\n!\r x", "\u00a0\u3000x \u2028 ", "e\u0301 \u0301", "\U0001ccf0\U00010d4aé"} {
		f.Add(s)
	}
	var patterns []*pattern
	for source := range scanners {
		p, err := newPattern(source)
		if err != nil {
			f.Fatal(err)
		}
		p.re.MatchTimeout, p.limit = time.Hour, time.Hour
		patterns = append(patterns, p)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || len(text) > 1000 {
			return
		}
		for _, p := range patterns {
			got, _ := p.pieces(text)
			if want, err := p.search(newPacer(), nil, text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s cuts %q into %q, regexp2 into %q, %v", p.re, text, got, want, err)
			}
		}
	})
}

// pieces returns what p cuts text into.
func (p *pattern) pieces(text string) (pieces []string, err error) {
	err = p.split(newPacer(), text, func(piece string) { pieces = append(pieces, piece) })
	return pieces, err
}

// TestScanners does the same for many characters beside every kind of another.
func TestScanners(t *testing.T) {
	var b strings.Builder
	for _, span := range [][2]rune{{0, 0x3ff}, {0x1c80, 0x1c90}, {0x1ff0, 0x2200}, {0x3000, 0x3010}, {0x10d40, 0x10d50}, {0x1f600, 0x1f610}} {
		for r := span[0]; r <= span[1]; r++ {
			b.WriteString(string(r) + "ab" + string(r) + "1 " + string(r) + "\n" + string(r) + "!  "[:r%3] + "'s"[:r%2])
		}
	}
	for source := range scanners {
		p, err := newPattern(source)
		if err != nil {
			t.Fatal(err)
		}
		p.re.MatchTimeout, p.limit = time.Hour, time.Hour
		got, _ := p.pieces(b.String())
		if want, err := p.search(newPacer(), nil, b.String()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s cuts otherwise than regexp2: %v", source, err)
		}
	}
}

// TestClasses holds the scanners' classes against tokenizers, over all characters.
func TestClasses(t *testing.T) {
	var classes map[string]string
	readJSON(t, "testdata/classes.json", &classes)
	want := make([]class, utf8.MaxRune+1)
	for name, c := range map[string]class{`\p{L}`: letter, `\p{N}`: number, `\s`: white} {
		for r := range parseRanges(t, classes[name]) {
			want[r] = c
		}
	}
	for r := range rune(utf8.MaxRune + 1) {
		if got, _ := classAt(string(r)); utf8.ValidRune(r) && got != want[r] {
			t.Errorf("%U is of class %d, want %d", r, got, want[r])
		}
	}
}

// TestSlowPatterns has a pattern that looks at a long run again from each place.
func TestSlowPatterns(t *testing.T) {
	p, err := newPattern(`a+b|a`)
	if err != nil {
		t.Fatal(err)
	}
	if p.re.MatchTimeout != maxSplit || p.limit != maxSplit {
		t.Errorf("limits of %v and %v", p.re.MatchTimeout, p.limit)
	}
	p.re.MatchTimeout = time.Millisecond
	if _, err := p.pieces(strings.Repeat("a", 1<<20)); !errors.Is(err, errSlow) {
		t.Errorf("one match: %v", err)
	}
	p.re.MatchTimeout, p.limit = time.Hour, time.Millisecond
	if _, err := p.pieces(strings.Repeat("a", 1<<14)); !errors.Is(err, errSlow) {
		t.Errorf("many matches: %v", err)
	}
}

func TestRefusedFamilies(t *testing.T) {
	sequence := func(decoders string) string { return `{"type":"Sequence","decoders":[` + decoders + `]}` }
	const replace, bytes, fuse, strip = `{"type":"Replace","pattern":{"String":"▁"},"content":" "}`, `{"type":"ByteFallback"}`, `{"type":"Fuse"}`,
		`{"type":"Strip","content":" ","start":1,"stop":0}`
	for name, c := range map[string]struct {
		tokenizer, field, value string
		want                    error
		names                   string
	}{
		"normalizer":           {"llama2", "normalizer", `{"type":"NFKC"}`, ErrUnsupported, "NFKC"},
		"in a sequence":        {"llama2", "normalizer", `{"type":"Sequence","normalizers":[{"type":"Lowercase"}]}`, ErrUnsupported, "Lowercase"},
		"NFC option":           {"qwen2", "normalizer", `{"type":"NFC","new":1}`, ErrUnsupported, "new"},
		"Prepend option":       {"llama2", "normalizer", `{"type":"Prepend","prepend":"_","new":1}`, ErrUnsupported, "new"},
		"Replace regex":        {"llama2", "normalizer", `{"type":"Replace","pattern":{"Regex":" +"},"content":"_"}`, ErrUnsupported, "Regex"},
		"Replace nothing":      {"llama2", "normalizer", `{"type":"Replace","pattern":{"String":""},"content":"_"}`, ErrInvalid, "no pattern"},
		"Replace by nothing":   {"llama2", "normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":""}`, ErrUnsupported, "nothing"},
		"pre-tokenizer":        {"llama2", "pre_tokenizer", `{"type":"Digits"}`, ErrUnsupported, "Digits"},
		"ByteLevel":            {"llama2", "pre_tokenizer", `{"type":"ByteLevel"}`, ErrUnsupported, "byte_fallback"},
		"replacement":          {"mistral", "pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`, ErrInvalid, "__"},
		"prepend_scheme":       {"mistral", "pre_tokenizer", `{"type":"Metaspace","replacement":"▁","prepend_scheme":"last"}`, ErrUnsupported, "last"},
		"Metaspace option":     {"mistral", "pre_tokenizer", `{"type":"Metaspace","replacement":"▁","add_prefix_space":true}`, ErrUnsupported, "add_prefix_space"},
		"decoder":              {"llama2", "decoder", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"decoder ByteLevel":    {"llama2", "decoder", `{"type":"ByteLevel"}`, ErrUnsupported, "ByteLevel"},
		"decoder for bytes":    {"qwen2", "decoder", sequence(replace + "," + bytes), ErrUnsupported, "2 decoders"},
		"no decoder for bytes": {"qwen2", "decoder", `null`, ErrUnsupported, "0 decoders"},
		"no ByteFallback":      {"llama2", "decoder", sequence(replace + "," + fuse + "," + strip), ErrUnsupported, "Replace Fuse Strip"},
		"Strip without Fuse":   {"llama2", "decoder", sequence(replace + "," + bytes + "," + strip), ErrUnsupported, "ByteFallback Strip"},
		"order":                {"llama2", "decoder", sequence(bytes + "," + replace), ErrUnsupported, "ByteFallback Replace"},
		"Fuse option":          {"llama2", "decoder", sequence(bytes + `,{"type":"Fuse","new":1}`), ErrUnsupported, "new"},
		"Strip at the end":     {"llama2", "decoder", sequence(bytes + "," + fuse + `,{"type":"Strip","content":" ","start":1,"stop":1}`), ErrUnsupported, "stop 1"},
		"Strip of another":     {"llama2", "decoder", sequence(bytes + "," + fuse + `,{"type":"Strip","content":"_","start":1,"stop":0}`), ErrUnsupported, `"_"`},
		"two tokens in one": {"qwen2", "added_tokens", `[{"id":700,"content":"\u1e69","normalized":true},{"id":701,"content":"s\u0323\u0307","normalized":true}]`,
			ErrUnsupported, "once normalized"},
		"space once normalized": {"qwen2", "added_tokens", `[{"id":700,"content":"\u2000","normalized":true},{"id":701,"content":"x","rstrip":true}]`, ErrUnsupported, "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(patched(t, c.tokenizer, patch(c.field, c.value)))
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
	var file struct{ Model map[string]any }
	readJSON(t, "testdata/llama2.json", &file)
	delete(file.Model["vocab"].(map[string]any), "<0xC3>")
	model, _ := json.Marshal(file.Model)
	if _, err := Load(patched(t, "llama2", patch("model", string(model)))); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "0xC3") {
		t.Errorf("without a byte: %v", err)
	}
}

func BenchmarkFamilies(b *testing.B) {
	prose := strings.Repeat("Before we proceed any further, hear me speak. You are all resolved rather to die than to famish?\n", 928)[:90_000]
	for _, name := range []string{"llama2", "across", "qwen2"} {
		b.Run(name+"/prose", func(b *testing.B) { benchmarkEncode(b, name, prose) })
		b.Run(name+"/one_word", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat("the", 30_000)) })
		b.Run(name+"/spaces", func(b *testing.B) { benchmarkEncode(b, name, strings.Repeat(" ", 90_000)) })
		b.Run(name+"/mixed", func(b *testing.B) { benchmarkEncode(b, name, mixed()) })
	}
}

// mixed is 90 kB in which hardly any piece comes twice.
func mixed() string {
	random, ranges := rand.New(rand.NewPCG(1, 1)), [][2]int{{'a', 'z'}, {'0', '9'}, {'!', '/'}, {' ', ' '}, {0x370, 0x4ff}, {0x4e00, 0x9fff}}
	var b strings.Builder
	for b.Len() < 90_000 {
		r := ranges[random.IntN(len(ranges))]
		b.WriteRune(rune(r[0] + random.IntN(r[1]-r[0]+1)))
	}
	return b.String()
}
