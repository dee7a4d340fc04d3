package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/marked"
)

// addedList returns a patch of added_tokens.
func addedList(tokens ...addedToken) map[string]json.RawMessage {
	for i := range tokens {
		id := int32(900 + i)
		tokens[i].ID = &id
	}
	data, _ := json.Marshal(tokens)
	return patch("added_tokens", string(data))
}

// TestControlTokens encodes with GPT-2's pieces; an id from 900 is an added token, and text that
// is none is -1.
func TestControlTokens(t *testing.T) {
	special := func(content string) addedToken { return addedToken{Content: content, Special: true} }
	plain := func(content string) addedToken { return addedToken{Content: content} }
	trusted, data := marked.Trusted, marked.Data
	join := func(parts ...marked.Text) marked.Text { return slices.Concat(parts...) }
	none, begin := []int32{-1}, []addedToken{special("<s>")}
	for name, c := range map[string]struct {
		added []addedToken
		text  marked.Text
		want  []int32
	}{
		"trusted":     {begin, trusted("a<s>b"), []int32{-1, 900, -1}},
		"data":        {begin, data("a<s>b"), none},
		"by its form": {[]addedToken{plain("<|x|>"), plain("<｜x｜>")}, data("<|x|><｜x｜>"), none},
		"its form is trusted": {[]addedToken{plain("<|x|>"), plain("<｜x｜>")}, trusted("<|x|><｜x｜>"),
			[]int32{900, 901}},
		"vocabulary": {[]addedToken{plain("<p>"), plain("<|x|")}, data("<p><|x|"), []int32{900, 901}},
		"trusted pieces": {begin, join(trusted("<"), trusted("s"), trusted(">")),
			[]int32{900}},
		"begins in data": {begin, join(data("<"), trusted("s>")), none},
		"ends in data":   {begin, join(trusted("<s"), data(">")), none},
		"around data":    {begin, join(trusted("<"), data("s"), trusted(">")), none},
		"between data":   {begin, join(data("<s>"), trusted("<s>"), data("<s>")), []int32{-1, 900, -1}},
		"around nothing": {begin, join(trusted("<"), marked.Text{{Data: true}}, trusted("s>")), []int32{900}},
		"a shorter one":  {[]addedToken{special("<s>x"), plain("<s>")}, data("<s>x"), []int32{901, -1}},
		"a later one":    {[]addedToken{special("<s>x"), plain(">x")}, data("<s>x"), []int32{-1, 901}},
		"a longer one":   {[]addedToken{special("<s>"), plain("<s>x")}, data("<s>x"), []int32{901}},
		"shorter, trusted": {[]addedToken{special("<s>x"), special("<s>")},
			join(trusted("<s>"), data("x")), []int32{901, -1}},
		"a byte's token": {begin, data("!"), none},
		"beside a word": {[]addedToken{{Content: "<s>", Special: true, SingleWord: true}},
			join(trusted("<s>"), data("a")), none},
		"beside no word": {[]addedToken{{Content: "<s>", Special: true, SingleWord: true}},
			join(trusted("<s>"), data("!")), []int32{900, -1}},
		"strips data": {[]addedToken{{Content: "<s>", Special: true, LStrip: true, RStrip: true}},
			join(data("a \n"), trusted("<s>"), data(" \t"), data(" b")), []int32{-1, 900, -1}},
		"strips nothing": {[]addedToken{{Content: "<s>", Special: true, LStrip: true, RStrip: true}},
			data("a <s> b"), none},
	} {
		tok := load(t, "gpt2", addedList(c.added...))
		ids, err := tok.EncodeMarked(c.text, true)
		var got []int32
		for _, id := range ids {
			if id >= 900 {
				got = append(got, id)
			} else if len(got) == 0 || got[len(got)-1] != -1 {
				got = append(got, -1)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
		if c.want[0] == -1 && len(c.want) == 1 && decodeAll(tok, ids) != c.text.String() {
			t.Errorf("%s: %q became %q", name, c.text.String(), decodeAll(tok, ids))
		}
	}
}

// Data keeps the tokens of single bytes, which may be special: nothing else spells them.
func TestSpecialBytes(t *testing.T) {
	for name, content := range map[string]string{"gpt2": "!", "llama2": "<0x07>", "unigram": "<0x07>"} {
		changes := map[string]json.RawMessage{}
		if name == "unigram" {
			changes = patch("model", `{"type":"Unigram","unk_id":0,"byte_fallback":true,`+
				`"vocab":[["<unk>",0],["<s>",0],["</s>",0],["<0x07>",-9],["<0x21>",-9]]}`)
			changes["pre_tokenizer"] = json.RawMessage("null")
		}
		tok := load(t, name, changes)
		want, err := tok.Encode("!\a")
		id, _ := tok.ID(content)
		added, _ := json.Marshal([]addedToken{{ID: &id, Content: content, Special: true}})
		changes["added_tokens"] = added
		got, err2 := load(t, name, changes).EncodeMarked(marked.Data("!\a"), true)
		if err != nil || err2 != nil || !slices.Equal(got, want) || !slices.Contains(got, id) {
			t.Errorf("%s: %v, %v, want %v with %d", name, got, err2, want, id)
		}
	}
}

// A control token that is found in normalised text is data if any part of it was.
func TestNormalizedControlTokens(t *testing.T) {
	const strip = `{"type":"Strip","strip_left":true,"strip_right":true}`
	replace := func(s string) string { return `{"type":"Replace","pattern":{"String":"` + s + `"},"content":"<s>"}` }
	const matched = `{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"<s>"}`
	const bert = `{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"lowercase":true}`
	own, _ := ownMap(t)
	for name, c := range map[string]struct {
		normalizer, content string
		pieces              []string // data and trusted text in turn, beginning with trusted text
		want                bool
	}{
		"composed":           {`{"type":"NFC"}`, "<é>", []string{"<e", "\u0301", ">"}, false},
		"composed, trusted":  {`{"type":"NFC"}`, "<é>", []string{"<e\u0301>", "\u0301"}, true},
		"reordered":          {`{"type":"NFC"}`, "<x\u0323\u0301>", []string{"<x\u0301", "\u0323", ">"}, false},
		"compatible":         {`{"type":"NFKC"}`, "<fi>", []string{"<", "ﬁ", ">"}, false},
		"lower case":         {`{"type":"Lowercase"}`, "<s>", []string{"<", "S", ">"}, false},
		"lower, trusted":     {`{"type":"Lowercase"}`, "<s>", []string{"<S>", "S"}, true},
		"replaced":           {replace("."), "<s>", []string{"", "."}, false},
		"replaced, trusted":  {replace("."), "<s>", []string{"."}, true},
		"replaced, straddle": {replace(".."), "<s>", []string{".", "."}, false},
		"stripped":           {strip, "<s>", []string{"", " ", "<s>", " "}, true},
		"stripped data":      {strip, "<s>", []string{" ", " <s> "}, false},
		"matched":            {matched, "<s>", []string{"", "  "}, false},
		"matched, straddle":  {matched, "<s>", []string{" ", " "}, false},
		"matched, trusted":   {matched, "<s>", []string{"  ", "a "}, true},
		"mapped":             {string(own), "<fi>", []string{"<", "ﬁ", ">"}, false},
		"mapped, straddle":   {string(own), "<é>", []string{"<e", "\u0301", ">"}, false},
		"mapped, trusted":    {string(own), "<fi>", []string{"<ﬁ>", "ﬁ"}, true},
		"not mapped":         {string(own), "<s>", []string{"", "<s>"}, false},
		"for BERT":           {bert, "<s>", []string{"<", "S", ">"}, false},
		"for BERT, trusted":  {bert, "<s>", []string{"<Ś>", "s"}, true},
		"accents":            {`{"type":"StripAccents"}`, "<s>", []string{"", "<s\u0301>"}, false},
		"prepended":          {`{"type":"Prepend","prepend":"_"}`, "<s>", []string{"<s>", "x"}, true},
		"prepended to data":  {`{"type":"Prepend","prepend":"_"}`, "<s>", []string{"", "<s>"}, false},
	} {
		changes := addedList(addedToken{Content: c.content, Normalized: true, Special: true})
		changes["normalizer"] = json.RawMessage(c.normalizer)
		var text marked.Text
		for i, piece := range c.pieces {
			text = append(text, marked.Piece{Text: piece, Data: i%2 == 1})
		}
		got, err := load(t, "gpt2", changes).EncodeMarked(text, true)
		if err != nil || slices.Contains(got, 900) != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// isMarker reports whether id is a control token other than the unknown token, which unknown
// characters give.
func (t *Tokenizer) isMarker(id int32) bool {
	var unk int32
	switch {
	case t.model.unigram != nil:
		unk = t.model.unigram.unk
	case t.model.wordPiece != nil:
		unk = t.model.wordPiece.unk
	default:
		unk = t.model.bpe.unk
	}
	return t.isControl(id) && id != unk
}

// planted returns changes to a tokenizer with BPE whose merges make each of its added tokens,
// and whose pre-tokenizer leaves texts whole.
func planted(t testing.TB, name string) map[string]json.RawMessage {
	t.Helper()
	var file struct {
		Model       map[string]any
		AddedTokens []addedToken `json:"added_tokens"`
	}
	readJSON(t, "testdata/"+name+".json", &file)
	vocab, merges, next := file.Model["vocab"].(map[string]any), []any{}, 2000
	name1 := func(content string, id int) {
		if _, ok := vocab[content]; !ok {
			vocab[content] = id
		}
	}
	for _, a := range file.AddedTokens {
		part := ""
		for _, r := range a.Content {
			name1(string(r), next)
			if part != "" {
				merges = append(merges, []string{part, string(r)})
			}
			part += string(r)
			if next++; part == a.Content {
				vocab[part] = *a.ID
			}
			name1(part, next+1000)
		}
	}
	file.Model["merges"] = append(merges, file.Model["merges"].([]any)...)
	model, err := json.Marshal(file.Model)
	if err != nil {
		t.Fatal(err)
	}
	changes := patch("model", string(model))
	changes["pre_tokenizer"] = json.RawMessage("null")
	if file.Model["byte_fallback"] != true {
		changes["pre_tokenizer"] = json.RawMessage(`{"type":"ByteLevel","use_regex":false}`)
	}
	return changes
}

// TestPlantedControlTokens checks that no model makes a control token of characters.
func TestPlantedControlTokens(t *testing.T) {
	for _, name := range []string{"gpt2", "llama3", "llama2", "qwen2", "unigram", "bert"} {
		changes := map[string]json.RawMessage{}
		lossy := name == "unigram" || name == "bert" // their vocabularies have the control tokens
		if name == "bert" {
			changes = patch("pre_tokenizer", "null")
			changes["normalizer"] = json.RawMessage("null")
		}
		if !lossy {
			changes = planted(t, name)
		}
		tok := load(t, name, changes)
		changes["added_tokens"] = json.RawMessage("[]")
		without := load(t, name, changes)
		tried := 0
		for content, id := range tok.ids {
			if !tok.isMarker(id) {
				continue
			}
			reached, err := without.EncodeMarked(marked.Trusted(content), false)
			if err != nil || !slices.Contains(reached, id) {
				t.Errorf("%s: without added tokens, %q is %v: %v", name, content, reached, err)
			}
			alone, err := tok.EncodeMarked(marked.Data(content), false)
			if err != nil || slices.ContainsFunc(alone, tok.isMarker) {
				t.Errorf("%s: %q as data is %v, %v", name, content, alone, err)
			}
			got, err := tok.EncodeMarked(marked.Data("x"+content+content), false)
			if err != nil || slices.ContainsFunc(got, tok.isMarker) || len(got) == 0 {
				t.Errorf("%s: %q as data is %v, %v", name, content, got, err)
			}
			if !lossy && decodeAll(tok, got) != "x"+content+content {
				t.Errorf("%s: %q came back as %q", name, content, decodeAll(tok, got))
			}
			tried++
		}
		if tried < 2 {
			t.Errorf("%s has %d control tokens", name, tried)
		}
	}
}

// An unknown token may be a control token. Unknown characters give its id, its text does not.
func TestUnknownAsControlToken(t *testing.T) {
	id := int32(0)
	added, _ := json.Marshal([]addedToken{{ID: &id, Content: "<unk>", Special: true}})
	tok := load(t, "unigram", patch("added_tokens", string(added)))
	got, err := tok.EncodeMarked(marked.Data("<unk>漢"), false)
	if err != nil || len(got) < 5 || got[len(got)-1] != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// Neighbouring unknown characters are looked up together, and may spell a control token.
func TestUnknownCharactersSpellAControlToken(t *testing.T) {
	changes := patch("model", `{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["<s>",-1],["a",-1]]}`)
	changes["added_tokens"] = json.RawMessage(`[{"id":1,"content":"<s>","special":true}]`)
	got, err := load(t, "unigram", changes).EncodeMarked(marked.Data("a<s>"), false)
	if err != nil || slices.Contains(got, 1) {
		t.Errorf("%v, %v", got, err)
	}
}

// markedTokenizers are tokenizers with control tokens, also such as are found in normalised text.
func markedTokenizers(t testing.TB) map[string]*Tokenizer {
	all := map[string]*Tokenizer{"llama2 planted": load(t, "llama2", planted(t, "llama2"))}
	for _, name := range []string{"gpt2", "llama3", "llama2", "mistral", "phi3", "across", "qwen2", "unigram", "bert"} {
		all[name] = load(t, name, nil)
		var file struct {
			AddedTokens []addedToken `json:"added_tokens"`
		}
		readJSON(t, "testdata/"+name+".json", &file)
		for i := range file.AddedTokens {
			file.AddedTokens[i].Normalized = true
		}
		added, _ := json.Marshal(file.AddedTokens)
		changes := patch("added_tokens", string(added))
		for kind, normalizer := range map[string]string{
			"NFC": `{"type":"NFC"}`, "prepend": `{"type":"Prepend","prepend":"▁"}`,
			"lowercase": `{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"}]}`,
			"replace": `{"type":"Sequence","normalizers":[{"type":"Strip","strip_left":true,"strip_right":true},` +
				`{"type":"Replace","pattern":{"String":"en"},"content":"<s>"},` +
				`{"type":"Replace","pattern":{"String":"."},"content":"<|"}]}`,
		} {
			changes["normalizer"] = json.RawMessage(normalizer)
			if tok, err := Load(patched(t, name, changes)); err == nil {
				all[name+" "+kind] = tok
			}
		}
	}
	return all
}

// FuzzMarked checks random texts. Exactly the control tokens that are trusted pieces come out, and
// where data holds no part of a control token, the ids are those of the joined text.
func FuzzMarked(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	all := markedTokenizers(f)
	f.Fuzz(func(t *testing.T, seed uint64) {
		for name, tok := range all {
			checkMarked(t, name, tok, rand.New(rand.NewPCG(seed, 1)))
		}
	})
}

func checkMarked(t *testing.T, name string, tok *Tokenizer, random *rand.Rand) {
	words := []string{"a", " the", "  ", "\n", "e\u0301", "\u0301", "漢字", "▁", "Hello", "12", "x ", "é", "ﬁ"}
	var control []addedToken
	for _, m := range tok.added.passes {
		for _, a := range m.tokens {
			if tok.isMarker(*a.ID) {
				control = append(control, a)
			}
		}
	}
	hostile, clean := random.IntN(2) == 0, true
	var text marked.Text
	var want []int32
	for range 1 + random.IntN(9) {
		a := control[random.IntN(len(control))]
		cut := random.IntN(len(a.Content))
		switch n := random.IntN(8); {
		case n < 2:
			text = append(text, marked.Piece{Text: a.Content})
			want = append(want, *a.ID)
		case n < 4:
			text = append(text, marked.Piece{Text: words[random.IntN(len(words))]})
		case n < 7 && hostile:
			s := []string{a.Content, a.Content[cut:], a.Content[:cut], "＜ｓ＞", strings.ToUpper(a.Content), ".end|>"}
			text = append(text, marked.Piece{Text: strings.ToValidUTF8(s[random.IntN(len(s))], ""), Data: true})
			clean = false
		default:
			text = append(text, marked.Piece{Text: words[random.IntN(len(words))], Data: true})
		}
	}
	ids, err := tok.EncodeMarked(text, false)
	got := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return !tok.isMarker(id) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %q: control tokens %v, %v, want %v", name, text, got, err, want)
	}
	joined, err := tok.EncodeMarked(marked.Trusted(text.String()), false)
	if clean && (err != nil || !slices.Equal(ids, joined)) {
		t.Errorf("%s: %q is %v, joined %v: %v", name, text, ids, joined, err)
	}
}
