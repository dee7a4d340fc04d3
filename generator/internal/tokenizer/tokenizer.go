// Package tokenizer turns text into token ids and ids back into text, exactly
// as Hugging Face's tokenizers does from the same tokenizer.json.
//
// It knows byte-level BPE (GPT-2, Llama 3, Qwen and their kin) and BPE over
// characters with byte fallback, as SentencePiece has it (Llama 2, Mistral,
// Phi-3). A component, option or pattern it does not know is refused by name: a
// guess would give a model other tokens than it was trained on, and no error
// would ever show it.
package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Errors of Load and Encode. Each comes wrapped, with the place at fault.
var (
	// ErrInvalid is a tokenizer.json that contradicts itself or its format.
	ErrInvalid = errors.New("invalid tokenizer")
	// ErrUnsupported is a tokenizer.json that asks for what this package lacks.
	ErrUnsupported = errors.New("tokenizer not supported")
	// ErrNotUTF8 is text that is not valid UTF-8.
	ErrNotUTF8 = errors.New("text is not valid UTF-8")
)

// Tokenizer encodes and decodes with one vocabulary. It does not change after
// Load and may be used by many goroutines.
type Tokenizer struct {
	normalizer normalizer
	added      addedTokens
	pre        preTokenizer
	model      *bpe
	post       template
	decoding   decoding
	tokens     []token          // by id
	ids        map[string]int32 // by content as the file spells it
	longest    int
}

// token is one id's entry.
type token struct {
	bytes   string // what it decodes to
	special bool   // left out of decoded text
	used    bool   // false for an id that no token has
}

// Encode returns the ids of text. Special tokens written out in text are
// recognised, and the post-processor's are added, as by tokenizers'
// encode(text, add_special_tokens=True). Its time grows as n log n; other goroutines
// run about every 100 µs of it. The error is ErrNotUTF8.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(newPacer(), text, t.post)
}

// EncodeRendered is Encode without what the post-processor adds: for text that a
// chat template has made, which has the special tokens in it already.
func (t *Tokenizer) EncodeRendered(text string) ([]int32, error) {
	return t.encode(newPacer(), text, template{})
}

func (t *Tokenizer) encode(p *pacer, text string, around template) ([]int32, error) {
	if !valid(p, text) {
		return nil, fmt.Errorf("tokenizer: %w", ErrNotUTF8)
	}
	w := t.model.encoder(p, around.prefix, len(text))
	for i, s := range t.added.split(p, text) {
		if s.id >= 0 {
			w.out = append(w.out, s.id)
			continue
		}
		if err := t.pre.split(p, s.text, i == 0, w.encode); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	return append(w.out, around.suffix...), nil
}

// valid reports whether text is UTF-8.
func valid(p *pacer, text string) bool {
	const part = 64 << 10 // bytes
	for len(text) > part {
		end := part
		for end > part-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		if !utf8.ValidString(text[:end]) {
			return false
		}
		text = text[end:]
		p.did(part)
	}
	return utf8.ValidString(text)
}

// Vocab returns the number of ids, added tokens included: every id is below it.
func (t *Tokenizer) Vocab() int { return len(t.tokens) }

// MaxTokenBytes returns the bytes of text that a token can stand for at most,
// before it is normalised. Text of more than n times as many bytes can't fit n
// tokens, but for white space that an added token strips.
func (t *Tokenizer) MaxTokenBytes() int { return t.longest * t.normalizer.shrinks() }

// ID returns the id of a token spelled as in tokenizer.json, such as
// "<|endoftext|>" or "Ġthe".
func (t *Tokenizer) ID(content string) (int32, bool) {
	id, ok := t.ids[content]
	return id, ok
}

// TokenText returns one token alone, special ones included. Bytes that are no
// UTF-8 become U+FFFD; an id that no token has gives "".
func (t *Tokenizer) TokenText(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	text, rest := lossy([]byte(t.tokens[id].bytes))
	return text + flush(rest)
}
