package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestStaleCandidates merges a and b while the candidate bc is in the queue: bc must not apply,
// and must not prevent the merge of c and de.
func TestStaleCandidates(t *testing.T) {
	c := &bpeConfig{Vocab: map[string]int32{}}
	for b, r := range charOf {
		c.Vocab[string(r)] = int32(b)
	}
	for i, m := range []mergePair{{"a", "b"}, {"b", "c"}, {"d", "e"}, {"c", "de"}} {
		c.Merges = append(c.Merges, m)
		c.Vocab[m[0]+m[1]] = int32(256 + i)
	}
	m, err := newBPE(c, func(int32) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	e := (&Tokenizer{model: model{bpe: m}}).encoder(newPacer(), nil, 0)
	e.encode("abcde")
	if want := []int32{256, 259}; !slices.Equal(e.out, want) {
		t.Errorf("%v, want %v", e.out, want)
	}
}

// TestLongPieces encodes very long pieces. It would take minutes if merging were quadratic.
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

// TestWords checks that the ids of a text are the same whether it is cut into words or not.
func TestWords(t *testing.T) {
	for _, name := range []string{"llama2", "mistral", "phi3"} {
		tok := load(t, name, nil)
		if tok.model.bpe.wordStart != space {
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
			tok.model.bpe.wordStart = ""
			whole, err2 := tok.Encode(text)
			tok.model.bpe.wordStart = space
			if err1 != nil || err2 != nil || !slices.Equal(cut, whole) {
				t.Fatalf("%s: %q is %v by words and %v whole", name, text, cut, whole)
			}
		}
	}
	// A text is not cut if a merge joins words. The vectors have such cases too.
	model := bpeConfig{Vocab: map[string]int32{space: 0}, Merges: []mergePair{{"a", "▁b"}}}
	if wordStart(&model) != "" || load(t, "across", nil).model.bpe.wordStart != "" {
		t.Error("a text is cut into words though a merge joins words")
	}
	model.Merges[0] = mergePair{"▁", "▁b"}
	if wordStart(&model) != space {
		t.Error("a text is not cut though merges only begin with the space")
	}
	if model.IgnoreMerges = true; wordStart(&model) != "" {
		t.Error("a text is cut though pieces are looked up whole")
	}
	if wordStart(&bpeConfig{}) != "" {
		t.Error("a text is cut though the space has no token")
	}
}
