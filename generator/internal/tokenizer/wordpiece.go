package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// wordPiece is a WordPiece model: a word becomes the longest token that it begins with, then the
// longest that continues it, and so on. (Schuster and Nakajima, "Japanese and Korean Voice
// Search", 2012; BERT's tokenization.py.)
type wordPiece struct {
	begin, inside trie // tokens that begin a word, and those that continue one, without their prefix
	unk           int32
	most          int // characters of a word; a longer one is unknown
}

// wordPieceConfig is a model of type WordPiece.
type wordPieceConfig struct {
	Type     string           `json:"type"`
	UnkToken string           `json:"unk_token"`
	Prefix   string           `json:"continuing_subword_prefix"`
	Most     int              `json:"max_input_chars_per_word"`
	Vocab    map[string]int32 `json:"vocab"`
}

func (c *wordPieceConfig) check() error {
	if _, ok := c.Vocab[c.UnkToken]; !ok {
		return fmt.Errorf("%w: vocab lacks unk_token %.40q", ErrInvalid, c.UnkToken)
	}
	if c.Most < 0 {
		return fmt.Errorf("%w: max_input_chars_per_word %d", ErrInvalid, c.Most)
	}
	return nil
}

// newWordPiece builds a model. It never makes a control token other than the unknown token.
func newWordPiece(c *wordPieceConfig, control func(int32) bool) *wordPiece {
	m := &wordPiece{newTrie(), newTrie(), c.Vocab[c.UnkToken], c.Most}
	for content, id := range c.Vocab {
		if control(id) {
			continue
		}
		m.begin.add(content, id)
		if rest, ok := strings.CutPrefix(content, c.Prefix); ok {
			m.inside.add(rest, id)
		}
	}
	return m
}

// encodeWordPiece appends the ids of one word, or the unknown token if no tokens spell it.
func (e *encoder) encodeWordPiece(word string) {
	if s, ok := e.seen[word]; ok {
		e.out = append(e.out, e.out[s.from:s.to]...)
		return
	}
	from := len(e.out)
	if !e.appendWord(word) {
		e.out = append(e.out[:from], e.wordPiece.unk)
	}
	e.seen[word] = span{from, len(e.out)}
	e.pacer.spent(200)
}

func (e *encoder) appendWord(word string) bool {
	m := e.wordPiece
	if len(word) > m.most && utf8.RuneCountInString(word) > m.most {
		return false
	}
	tokens := &m.begin
	for word != "" {
		id, n := tokens.longest(word)
		if n == 0 {
			return false
		}
		e.pacer.spent(20 * n)
		e.out = append(e.out, id)
		word, tokens = word[n:], &m.inside
	}
	return true
}

// longest returns the longest token that text begins with, and its bytes; 0 bytes: none.
func (t *trie) longest(text string) (id int32, n int) {
	node := int32(0)
	for i := range len(text) {
		var ok bool
		if node, ok = t.next(node, text[i]); !ok {
			break
		}
		if t.ids[node] >= 0 {
			id, n = t.ids[node], i+1
		}
	}
	return id, n
}

// newWordPieceDecoder builds the decoder WordPiece: a space before each token but the first, and
// none before one that continues a word. With cleanup it removes spaces around English punctuation.
func newWordPieceDecoder(list []json.RawMessage) (d tokenDecoder, err error) {
	if len(list) != 1 {
		return d, fmt.Errorf("%w: %d decoders, want one of type WordPiece", ErrUnsupported, len(list))
	}
	kind, err := typeOf(list[0])
	if err == nil && kind != "WordPiece" {
		err = unsupported(kind)
	}
	c := struct {
		Type    string `json:"type"`
		Prefix  string `json:"prefix"`
		Cleanup bool   `json:"cleanup"`
	}{Prefix: "##", Cleanup: true}
	if err == nil {
		err = decode(list[0], &c)
	}
	clean := func(s string) string {
		if !c.Cleanup {
			return s
		}
		for _, r := range cleanups {
			s = strings.ReplaceAll(s, r[0], r[1])
		}
		return s
	}
	d.first = clean
	d.text = func(content string) string {
		if rest, ok := strings.CutPrefix(content, c.Prefix); ok {
			return clean(rest)
		}
		return clean(" " + content)
	}
	return d, err
}

// cleanups are the replacements that cleanup makes in each token, in order.
var cleanups = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
	{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}
