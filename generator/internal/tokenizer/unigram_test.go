package tokenizer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestRefusedUnigrams(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		want  error
		names string
	}{
		"no unk_id":       {`{"type":"Unigram","vocab":[["a",0.0]]}`, ErrUnsupported, "unk_id"},
		"unk_id too high": {`{"type":"Unigram","unk_id":1,"vocab":[["a",0.0]]}`, ErrInvalid, "unk_id 1"},
		"unk_id too low":  {`{"type":"Unigram","unk_id":-1,"vocab":[["a",0.0]]}`, ErrInvalid, "unk_id -1"},
		"no vocabulary":   {`{"type":"Unigram","unk_id":0,"vocab":[]}`, ErrInvalid, "unk_id 0"},
		"twice":           {`{"type":"Unigram","unk_id":0,"vocab":[["a",0.0],["a",-1]]}`, ErrInvalid, `"a"`},
		"three parts":     {`{"type":"Unigram","unk_id":0,"vocab":[["a",0.0,1]]}`, ErrInvalid, "3 parts"},
		"no list":         {`{"type":"Unigram","unk_id":0,"vocab":{"a":0}}`, ErrInvalid, "vocab"},
		"text for score":  {`{"type":"Unigram","unk_id":0,"vocab":[["a","b"]]}`, ErrInvalid, "float64"},
		"option":          {`{"type":"Unigram","unk_id":0,"vocab":[["a",0.0]],"new":1}`, ErrUnsupported, "new"},
	} {
		changes := patch("model", c.model)
		changes["added_tokens"] = json.RawMessage(`[]`)
		_, err := Load(patched(t, "unigram", changes))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want %v naming %q", name, err, c.want, c.names)
		}
	}
}

// TestLongUnigrams encodes 270 kB in one piece. It would take minutes if anything were quadratic.
func TestLongUnigrams(t *testing.T) {
	tok := load(t, "unigram", patch("pre_tokenizer", "null"))
	for _, unit := range []string{"a", "the", " ", "漢", "\u0301", "<unk>"} {
		ids, err := tok.Encode(strings.Repeat(unit, 270_000/len(unit)))
		if err != nil || len(ids) == 0 {
			t.Errorf("%q repeated: %d ids, %v", unit, len(ids), err)
		}
		if unit == "漢" && !slices.Equal(ids, []int32{tok.model.unigram.unk}) {
			t.Errorf("unknown characters have %d ids, want one", len(ids))
		}
	}
}

func BenchmarkUnigram(b *testing.B) {
	b.Run("prose", func(b *testing.B) { benchmarkEncode(b, "unigram", prose()) })
	b.Run("mixed", func(b *testing.B) { benchmarkEncode(b, "unigram", mixed()) })
}
