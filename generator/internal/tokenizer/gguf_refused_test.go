package tokenizer

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/marked"
)

func TestGGUFRefused(t *testing.T) {
	llama, gpt2 := scored(t), converted(t, "gpt2", "gpt-2", patch("added_tokens", "[]"))
	tokens := gpt2["tokenizer.ggml.tokens"].([]string)
	changed := func(m pairs, key string, at int, value any) pairs {
		switch v := value.(type) {
		case string:
			list := slices.Clone(m[key].([]string))
			list[at] = v
			return m.with(key, list)
		case int64:
			list := slices.Clone(m[key].([]int64))
			list[at] = v
			return m.with(key, list)
		}
		list := slices.Clone(m[key].([]float64))
		list[at] = value.(float64)
		return m.with(key, list)
	}
	const list, kinds, scores, merges = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores",
		"tokenizer.ggml.merges"
	for name, c := range map[string]struct {
		m     pairs
		want  error
		names string
	}{
		"no model":           {gpt2.with("tokenizer.ggml.model", nil), ErrInvalid, "ggml.model"},
		"model no string":    {gpt2.with("tokenizer.ggml.model", uint64(1)), ErrInvalid, "ggml.model"},
		"model":              {gpt2.with("tokenizer.ggml.model", "t5"), ErrUnsupported, `"t5"`},
		"no pre-tokenizer":   {gpt2.with("tokenizer.ggml.pre", nil), ErrUnsupported, "ggml.pre"},
		"pre-tokenizer":      {gpt2.with("tokenizer.ggml.pre", "kimi-k2"), ErrUnsupported, `"kimi-k2"`},
		"no tokens":          {gpt2.with(list, nil), ErrInvalid, list},
		"too many tokens":    {gpt2.with(list, make([]string, maxVocab+1)), ErrInvalid, "at most 1048576"},
		"no types":           {gpt2.with(kinds, nil), ErrInvalid, "token_type has 0"},
		"type":               {changed(gpt2, kinds, 3, int64(7)), ErrInvalid, "token 3 has type 7"},
		"negative type":      {changed(gpt2, kinds, 3, int64(-1)), ErrInvalid, "token 3 has type -1"},
		"huge type":          {changed(gpt2, kinds, 3, int64(math.MaxInt64)), ErrInvalid, "token 3"},
		"duplicate":          {changed(gpt2, list, 7, tokens[6]), ErrInvalid, "the ids 6 and 7"},
		"duplicate control":  {changed(changed(llama, list, 300, "<s>"), kinds, 300, int64(3)), ErrInvalid, `"<s>"`},
		"no UTF-8":           {changed(gpt2, list, 7, "a\xff"), ErrInvalid, "entry 7 is not UTF-8"},
		"long tokens":        {changed(gpt2, list, 7, strings.Repeat("x", maxGGUFText)), ErrInvalid, "more than"},
		"no merges":          {gpt2.with(merges, nil), ErrInvalid, merges},
		"too many merges":    {gpt2.with(merges, make([]string, maxMerges+1)), ErrInvalid, "more than 1048576 merges"},
		"merge of one":       {gpt2.with(merges, []string{"ab"}), ErrInvalid, `"ab"`},
		"merge of three":     {gpt2.with(merges, []string{"a b c"}), ErrInvalid, "two parts"},
		"merge unknown":      {gpt2.with(merges, []string{"a qqq"}), ErrInvalid, `"qqq"`},
		"merge of nothing":   {gpt2.with(merges, []string{"a "}), ErrInvalid, `""`},
		"merge no UTF-8":     {gpt2.with(merges, []string{"a \xff"}), ErrInvalid, "UTF-8"},
		"no scores":          {llama.with(scores, nil), ErrInvalid, scores},
		"few scores":         {llama.with(scores, []float64{1}), ErrInvalid, "1 entries"},
		"few whole scores":   {llama.with(scores, []int64{1}), ErrInvalid, "1 entries"},
		"NaN":                {changed(llama, scores, 5, math.NaN()), ErrInvalid, "token 5 has the score NaN"},
		"one score":          {llama.with(scores, make([]float64, len(llama[scores].([]float64)))), ErrUnsupported, "all 0"},
		"byte token missing": {changed(llama, list, 68, "<0xZZ>"), ErrUnsupported, "0x41"},
		"bos id":             {gpt2.with("tokenizer.ggml.bos_token_id", uint64(len(tokens))), ErrInvalid, "bos_token_id"},
		"eos id":             {llama.with("tokenizer.ggml.eos_token_id", uint64(math.MaxUint64)), ErrInvalid, "eos_token_id"},
		"end list":           {llama.with("tokenizer.ggml.eos_token_ids", []int64{2, 1 << 40}), ErrInvalid, "eos_token_ids"},
		"negative end":       {llama.with("tokenizer.ggml.eos_token_ids", []int64{-1}), ErrInvalid, "eos_token_ids"},
		"bos of Gemma 4":     {gpt2.with("tokenizer.ggml.model", "gemma4"), ErrInvalid, "bos_token_id"},
		"bos missing":        {gpt2.with("tokenizer.ggml.add_bos_token", true), ErrInvalid, "bos_token_id"},
		"bos by default": {gpt2.with("tokenizer.ggml.pre", "tekken").with("tokenizer.ggml.add_bos_token", nil),
			ErrInvalid, "bos_token_id"},
		"eos missing": {gpt2.with("tokenizer.ggml.add_eos_token", true), ErrInvalid, "eos_token_id"},
		"template":    {llama.with("tokenizer.chat_template", "\xff"), ErrInvalid, "chat_template"},
		"for tools":   {llama.with("tokenizer.chat_template.tool_use", "\xff"), ErrInvalid, "tool_use"},
		"splits":      {staircase(llama, 1455), ErrInvalid, "more than 1048576 merges"},
		"long token":  {staircase(llama, 1, strings.Repeat("a", 1<<16)), ErrInvalid, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := FromGGUF(c.m)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%v, want %v naming %q", err, c.want, c.names)
			}
		})
	}
}

// staircase returns m with the tokens a, aa, … in addition, up to n of them, and with the tokens more.
// Each of them has as many cuts as characters.
func staircase(m pairs, n int, more ...string) pairs {
	tokens := slices.Clone(m["tokenizer.ggml.tokens"].([]string))
	kinds := slices.Clone(m["tokenizer.ggml.token_type"].([]int64))
	scores := slices.Clone(m["tokenizer.ggml.scores"].([]float64))
	for i := range n {
		more = append(more, strings.Repeat("a", i+2))
	}
	for _, token := range more {
		if !slices.Contains(tokens, token) {
			tokens, kinds, scores = append(tokens, token), append(kinds, 1), append(scores, -1)
		}
	}
	return m.with("tokenizer.ggml.tokens", tokens).with("tokenizer.ggml.token_type", kinds).
		with("tokenizer.ggml.scores", scores)
}

// Converters leave rows of the embedding without a token: unused ones, or empty ones.
func TestGGUFUnused(t *testing.T) {
	m := scored(t)
	tokens, kinds := slices.Clone(m["tokenizer.ggml.tokens"].([]string)), slices.Clone(m["tokenizer.ggml.token_type"].([]int64))
	scores := append(slices.Clone(m["tokenizer.ggml.scores"].([]float64)), -1, -1, -1, -1)
	tokens, kinds = append(tokens, "", "", "th th", "th th"), append(kinds, 1, 3, 5, 5)
	tok, _ := fromGGUF(t, m.with("tokenizer.ggml.tokens", tokens).with("tokenizer.ggml.token_type", kinds).
		with("tokenizer.ggml.scores", scores))
	checkVectors(t, tok, vectorsOf(t, "scored")[0])
	if tok.Vocab() != 1100 {
		t.Errorf("%d tokens, want 1100", tok.Vocab())
	}
}

// Ollama's converters write rows without a token as added tokens, which text does not become.
func TestGGUFPadding(t *testing.T) {
	m := converted(t, "gpt2", "gpt-2", patch("added_tokens", "[]"))
	kinds := slices.Clone(m["tokenizer.ggml.token_type"].([]int64))
	for id, kind := range kinds {
		if ggufKind(kind) == kindUnused {
			kinds[id] = int64(kindUser)
		}
	}
	want, _ := fromGGUF(t, m)
	got, _ := fromGGUF(t, m.with("tokenizer.ggml.token_type", kinds))
	last := m["tokenizer.ggml.tokens"].([]string)[len(kinds)-1]
	if !sameIDs(want, got, marked.Trusted(last), true) || got.Vocab() != want.Vocab() || !strings.HasPrefix(last, "[PAD") {
		t.Errorf("%s is a token, and %d of %d ids", last, got.Vocab(), want.Vocab())
	}
}

// Infinite scores have an order like others, and merges of one token in a circle of others end.
func TestGGUFScoresAreOrdered(t *testing.T) {
	m := scored(t)
	scores := slices.Clone(m["tokenizer.ggml.scores"].([]float64))
	for i := range scores {
		scores[i] = []float64{math.Inf(1), math.Inf(-1), math.MaxFloat64}[i%3]
	}
	tok, _ := fromGGUF(t, staircase(m.with("tokenizer.ggml.scores", scores), 40))
	if _, err := tok.Encode(strings.Repeat("a", 3000) + " the"); err != nil {
		t.Error(err)
	}
}

func TestGGUFSettings(t *testing.T) {
	m := scored(t).with("tokenizer.chat_template", "{{ bos_token }}").with("tokenizer.ggml.eot_token_id", uint64(400)).
		with("tokenizer.chat_template.tool_use", "{{ tools }}").with("tokenizer.ggml.padding_token_id", uint64(0)).
		with("tokenizer.ggml.eom_token_id", uint64(401))
	_, s := fromGGUF(t, m)
	if s.ChatTemplate != "{{ bos_token }}" || s.ToolsTemplate != "{{ tools }}" || !slices.Equal(s.EndTokens, []int32{2, 400, 401}) {
		t.Errorf("%+v", s)
	}
	for name, want := range map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
		"pad_token": "<unk>"} {
		if s.Tokens[name] != want {
			t.Errorf("%s is %q, want %q", name, s.Tokens[name], want)
		}
	}
	// Qwen's file names one end token and has two.
	_, s = fromGGUF(t, converted(t, "qwen2", "qwen2", nil).with("tokenizer.ggml.eos_token_id", uint64(642)))
	if !slices.Equal(s.EndTokens, []int32{640, 642}) || len(s.Tokens) != 1 {
		t.Errorf("%+v", s)
	}
}

// Where a file has <|return|> and <|call|>, <|end|> ends a message of an answer and not the answer.
func TestGGUFEndOfAMessage(t *testing.T) {
	for names, want := range map[string][]int32{"<|end|> <|return|> <|call|>": {641, 642},
		"<|end|> <|return|> [EOT]": {640, 641, 642}, "<|end|> <|other|> <|call|>": {640, 642}} {
		m := converted(t, "qwen2", "qwen2", nil)
		tokens := slices.Clone(m["tokenizer.ggml.tokens"].([]string))
		copy(tokens[640:], strings.Fields(names))
		_, s := fromGGUF(t, m.with("tokenizer.ggml.tokens", tokens).with("tokenizer.ggml.eos_token_id", uint64(642)))
		if !slices.Equal(s.EndTokens, want) {
			t.Errorf("%s: %v end an answer, want %v", names, s.EndTokens, want)
		}
	}
}

// BOS and EOS come from add_bos_token and add_eos_token, else from the default of the pre-tokenizer.
func TestGGUFBeginsAndEnds(t *testing.T) {
	const bos, eos = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"
	llama3 := converted(t, "llama3", "llama-bpe", nil).with("tokenizer.ggml.bos_token_id", uint64(702)).
		with("tokenizer.ggml.eos_token_id", uint64(703)).with(bos, nil)
	for name, c := range map[string]struct {
		m           pairs
		first, last int32 // -1: none
	}{
		"llama":        {scored(t), 1, -1},
		"llama not":    {scored(t).with(bos, false), -1, -1},
		"llama both":   {scored(t).with(eos, true), 1, 2},
		"llama3":       {llama3, 702, -1},
		"llama3 not":   {llama3.with(bos, false), -1, -1},
		"tekken":       {llama3.with("tokenizer.ggml.pre", "tekken"), 702, -1},
		"gpt-2":        {llama3.with("tokenizer.ggml.pre", "gpt-2"), -1, -1},
		"gpt-2 begins": {llama3.with("tokenizer.ggml.pre", "gpt-2").with(bos, true), 702, -1},
		"gpt-2 ends":   {llama3.with("tokenizer.ggml.pre", "gpt-2").with(eos, true), -1, 703},
	} {
		t.Run(name, func(t *testing.T) {
			tok, _ := fromGGUF(t, c.m)
			plain, err1 := tok.EncodeMarked(marked.Trusted("the"), false)
			got, err2 := tok.Encode("the")
			want := plain
			if c.first >= 0 {
				want = append([]int32{c.first}, want...)
			}
			if c.last >= 0 {
				want = append(slices.Clone(want), c.last)
			}
			if err1 != nil || err2 != nil || !slices.Equal(got, want) {
				t.Errorf("%v %v %v, want %v", got, err1, err2, want)
			}
		})
	}
}

// Without add_space_prefix no space is put in front of a text, and a text keeps its own.
func TestGGUFSpacePrefix(t *testing.T) {
	for prepend, want := range map[bool]string{true: "the", false: " the"} {
		tok, _ := fromGGUF(t, scored(t).with("tokenizer.ggml.add_space_prefix", prepend))
		with, err1 := tok.Encode("the")
		without, err2 := tok.Encode(" the")
		if err1 != nil || err2 != nil || slices.Equal(with, without) {
			t.Errorf("%v: %v and %v, %v %v", prepend, with, without, err1, err2)
		}
		ids, _ := tok.ID("▁the")
		if got := decodeAll(tok, []int32{ids}); got != want || slices.Contains(with, ids) != prepend {
			t.Errorf("%v: %q, want %q", prepend, got, want)
		}
	}
}

// Data never becomes a control token: of type 3, or named as one that ends a text.
func TestGGUFMarked(t *testing.T) {
	m := converted(t, "qwen2", "qwen2", nil)
	kinds := slices.Clone(m["tokenizer.ggml.token_type"].([]int64))
	kinds[640] = int64(kindNormal) // <|endoftext|>
	kinds[643] = int64(kindControl)
	tok, _ := fromGGUF(t, m.with("tokenizer.ggml.token_type", kinds))
	for content, id := range map[string]int32{"<|endoftext|>": 640, "<|im_end|>": 642, "<tool_call>": 643} {
		trusted, err1 := tok.EncodeMarked(marked.Trusted("a "+content), false)
		data, err2 := tok.EncodeMarked(marked.Text{{Text: "a "}, {Text: content, Data: true}}, false)
		if err1 != nil || err2 != nil || !slices.Contains(trusted, id) || slices.Contains(data, id) {
			t.Errorf("%s: %v %v, %v %v", content, trusted, err1, data, err2)
		}
		if got := decodeAll(tok, []int32{id}); got != "" {
			t.Errorf("%s is decoded as %q", content, got)
		}
	}
}

// FuzzGGUF checks that no metadata makes FromGGUF panic, that errors have a type, and that a
// tokenizer encodes, decodes and keeps control tokens out of data.
func FuzzGGUF(f *testing.F) {
	f.Add(true, "<s>\x00a\x00aa\x00aaa\x00 \x00", []byte{3, 1, 1, 1, 4}, []byte{9, 1, 2, 3}, uint64(0), "llama-bpe")
	f.Add(false, "a\x00b\x00ab\x00<|im_end|>", []byte{1, 1, 1, 3}, []byte("a b"), uint64(3), "qwen2")
	f.Add(false, "a\x00b\x00a", []byte{1, 1, 1}, []byte{}, uint64(7), "x")
	f.Add(false, "<bos>\x00<turn|>\x00</s>\x00<|tool_response>\x00a", []byte{3, 3, 1, 4}, []byte("< /"), uint64(0), "gemma4")
	f.Fuzz(func(t *testing.T, llama bool, tokens string, kinds, more []byte, id uint64, pre string) {
		checkAny(t, anyMetadata(llama, tokens, kinds, more, id, pre))
	})
}

// anyMetadata returns metadata that a few bytes determine. With llama it has the tokens of all bytes.
func anyMetadata(llama bool, tokens string, kinds, more []byte, id uint64, pre string) pairs {
	list := strings.Split(tokens, "\x00")
	m := pairs{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
		"tokenizer.ggml.merges":       strings.Split(string(more), "\x00"),
		"tokenizer.ggml.bos_token_id": id % 5, "tokenizer.ggml.eos_token_id": id, "tokenizer.chat_template": tokens,
		"tokenizer.ggml.add_bos_token": id%2 == 0, "tokenizer.ggml.add_space_prefix": id%3 == 0}
	var types []int64
	for i := range list {
		types = append(types, int64(1))
		if i < len(kinds) {
			types[i] = int64(kinds[i])
		}
	}
	if pre == "gemma4" {
		m["tokenizer.ggml.model"] = pre
	}
	if llama || pre == "gemma4" {
		if llama {
			m["tokenizer.ggml.model"] = "llama"
		}
		for b := range 256 {
			list, types = append(list, byteContent(byte(b))), append(types, 6)
		}
		scores := make([]float64, len(list))
		for i, b := range more {
			scores[i%len(list)] = math.Float64frombits(uint64(b) << 56)
		}
		m["tokenizer.ggml.scores"] = scores
	}
	m["tokenizer.ggml.tokens"], m["tokenizer.ggml.token_type"] = list, types
	return m
}

func checkAny(t *testing.T, m pairs) {
	tok, s, err := FromGGUF(m)
	if err != nil {
		if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("untyped: %v", err)
		}
		return
	}
	text := strings.ToValidUTF8(strings.Join(m["tokenizer.ggml.tokens"].([]string), " "), "") + " aaab <s>"
	ids, err := tok.EncodeMarked(marked.Text{{Text: text, Data: true}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if int(id) >= tok.Vocab() || tok.isControl(id) && !tok.isByte(id) {
			t.Errorf("%q: id %d", text, id)
		}
	}
	decodeAll(tok, ids)
	for _, id := range s.EndTokens {
		if int(id) >= tok.Vocab() || !tok.isControl(id) {
			t.Errorf("the end token %d is no control token", id)
		}
	}
}

// isByte reports whether id is a single byte's.
func (t *Tokenizer) isByte(id int32) bool {
	return t.model.bpe != nil && slices.Contains(t.model.bpe.byteIDs[:], id)
}

// A short share of FuzzGGUF, with mutations of whole vocabularies.
func TestMutatedGGUF(t *testing.T) {
	mutated := 0
	for _, seed := range []pairs{scored(t), converted(t, "qwen2", "qwen2", nil)} {
		for n := range 300 {
			m := seed.with("", nil)
			mutate(m, n)
			checkAny(t, m)
			mutated++
		}
	}
	if mutated < 500 {
		t.Errorf("%d mutations", mutated)
	}
}

// mutate changes one entry of one list, or one number, as n says.
func mutate(m pairs, n int) {
	at := func(length int) int { return n * 7919 % max(length, 1) }
	switch tokens := slices.Clone(m["tokenizer.ggml.tokens"].([]string)); n % 6 {
	case 0:
		tokens[at(len(tokens))] = []string{"", "a", "\xff", "<s>", " ", "<|im_end|>"}[n/6%6]
		m["tokenizer.ggml.tokens"] = tokens
	case 1:
		kinds := slices.Clone(m["tokenizer.ggml.token_type"].([]int64))
		kinds[at(len(kinds))] = []int64{0, 2, 3, 4, 5, 6, 7, math.MinInt64}[n/6%8]
		m["tokenizer.ggml.token_type"] = kinds
	case 2:
		m["tokenizer.ggml.tokens"] = tokens[:at(len(tokens))]
	case 3:
		m["tokenizer.ggml."+[]string{"bos", "eos", "eot", "unknown"}[n/6%4]+"_token_id"] = uint64(n) * 37
	case 4:
		if scores, ok := m.Floats("tokenizer.ggml.scores"); ok {
			scores = slices.Clone(scores)
			scores[at(len(scores))] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0}[n/6%4]
			m["tokenizer.ggml.scores"] = scores
		}
	default:
		if merges, ok := m.Strings("tokenizer.ggml.merges"); ok {
			merges = slices.Clone(merges)
			merges[at(len(merges))] = []string{"", "a", "a b c", "\xff b", merges[0], "<|im_end|> a"}[n/6%6]
			m["tokenizer.ggml.merges"] = merges
		}
	}
}
