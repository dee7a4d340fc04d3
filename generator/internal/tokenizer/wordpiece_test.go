package tokenizer

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRefusedWordPieces(t *testing.T) {
	for name, c := range map[string]struct {
		field, value string
		want         error
		names        string
	}{
		"no unknown token": {"model", `{"type":"WordPiece","vocab":{"a":0}}`, ErrInvalid, "[UNK]"},
		"negative length": {"model", `{"type":"WordPiece","max_input_chars_per_word":-1,"vocab":{"[UNK]":0}}`,
			ErrInvalid, "max_input_chars_per_word -1"},
		"option":         {"model", `{"type":"WordPiece","vocab":{"[UNK]":0},"new":1}`, ErrUnsupported, "new"},
		"decoder":        {"decoder", `{"type":"Metaspace"}`, ErrUnsupported, "Metaspace"},
		"no decoder":     {"decoder", `null`, ErrUnsupported, "0 decoders"},
		"decoder option": {"decoder", `{"type":"WordPiece","new":1}`, ErrUnsupported, "new"},
		"ByteLevel":      {"pre_tokenizer", `{"type":"ByteLevel"}`, ErrUnsupported, "WordPiece"},
		"BertPreTokenizer's option": {"pre_tokenizer", `{"type":"BertPreTokenizer","new":1}`,
			ErrUnsupported, "new"},
		"BertNormalizer's option": {"normalizer", `{"type":"BertNormalizer","new":1}`, ErrUnsupported, "new"},
		"no vocabulary":           {"model", `{"type":"WordPiece"}`, ErrInvalid, "[UNK]"},
	} {
		changes := patch("added_tokens", "[]")
		changes["post_processor"] = json.RawMessage("null")
		changes[c.field] = json.RawMessage(c.value)
		_, err := Load(patched(t, "bert", changes))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want %v naming %q", name, err, c.want, c.names)
		}
	}
}

// TestLongEncoders encodes 90 kB with the pipelines of BERT and T5. It would take minutes if
// anything were quadratic.
func TestLongEncoders(t *testing.T) {
	own, _ := ownMap(t)
	tokenizers := map[string]*Tokenizer{
		"bert": load(t, "bert", nil),
		"long words": load(t, "bert", map[string]json.RawMessage{"pre_tokenizer": json.RawMessage("null"),
			"model": json.RawMessage(`{"type":"WordPiece","max_input_chars_per_word":1000000,` +
				`"vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"[MASK]":4,"a":5,"##a":6}}`)}),
		"precompiled": load(t, "unigram", map[string]json.RawMessage{"normalizer": own}),
		"spaces": load(t, "unigram", patch("normalizer",
			`{"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "}`)),
	}
	for name, tok := range tokenizers {
		for _, unit := range []string{"a", "the", " ", "  b", "漢", "\u0301", "e\u0301", "[CLS", "👩‍", "\r\n", "."} {
			if _, err := tok.Encode(strings.Repeat(unit, 90_000/len(unit))); err != nil {
				t.Errorf("%s: %q repeated: %v", name, unit, err)
			}
		}
	}
}

func BenchmarkEncoders(b *testing.B) {
	b.Run("bert/prose", func(b *testing.B) { benchmarkEncode(b, "bert", prose()) })
	b.Run("bert/mixed", func(b *testing.B) { benchmarkEncode(b, "bert", mixed()) })
}
