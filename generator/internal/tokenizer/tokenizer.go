// Package tokenizer turns text into token ids and ids back into text, with the same results
// as Hugging Face's library tokenizers on the same tokenizer.json. [FromGGUF] makes the same
// tokenizer from the metadata of a GGUF file.
//
// It supports byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM, DeepSeek-LLM), SentencePiece's BPE
// over characters with byte fallback (Llama 2, Mistral, Phi-3, Gemma), Unigram (T5, XLM-R, ALBERT)
// and WordPiece (BERT). It refuses unknown components, options and patterns by name: a guess could
// give a model tokens that it was not trained on, without an error.
//
// One result differs: a control token comes only from its own text, found before the model sees
// it. A model of tokenizers can also make one of other characters, by merges or in normalised text.
package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/marked"
)

// Errors of [Load], [FromGGUF] and [Tokenizer.Encode]. Each comes wrapped with the place of the fault.
var (
	// ErrInvalid means that tokenizer.json, or a GGUF file's metadata, contradicts itself or its format.
	ErrInvalid = errors.New("invalid tokenizer")
	// ErrUnsupported means that either asks for something that this package lacks.
	ErrUnsupported = errors.New("tokenizer not supported")
	// ErrNotUTF8 means that a text is not valid UTF-8.
	ErrNotUTF8 = errors.New("text is not valid UTF-8")
)

// Tokenizer encodes and decodes with one vocabulary. It is immutable, so goroutines may
// share it.
type Tokenizer struct {
	normalizer normalizer
	added      addedTokens
	pre        preTokenizer
	model      model
	post       template
	decoder    tokenDecoder
	tokens     []token          // by id
	ids        map[string]int32 // by content, spelled as in the file
	firsts     map[int32]string // text of tokens that differs at the beginning of a text
	longest    int              // bytes of the longest token
	modelVocab int              // see ModelVocab
}

// model is one of the three.
type model struct {
	bpe       *bpe
	unigram   *unigram
	wordPiece *wordPiece
}

// token is the entry of one id.
type token struct {
	bytes   string // decoded
	special bool   // omitted from decoded text
	control bool   // see addedToken.isControl
	used    bool   // false if no token has the id
}

// Encode is [Tokenizer.EncodeMarked] for a trusted text, with the tokens of the post-processor.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.EncodeMarked(marked.Trusted(text), true)
}

// EncodeMarked returns the ids of text. With postProcessor it adds the tokens of the
// post-processor; the text of a chat template already has them. Control tokens are recognised
// only where all their bytes are trusted. In data their characters are text like any other: no
// id of a control token comes from data, unless it is also the unknown token's or a single byte's.
// Otherwise the marks change nothing: the ids are those of tokenizers' encode(text,
// add_special_tokens=postProcessor), also across pieces.
//
// Its time grows as n log n, and it yields to other goroutines about every 100 µs. Errors:
// ErrNotUTF8, or a pattern of the pre-tokenizer that takes too long.
func (t *Tokenizer) EncodeMarked(text marked.Text, postProcessor bool) ([]int32, error) {
	around := template{}
	if postProcessor {
		around = t.post
	}
	return t.encode(newPacer(), newSource(text), around)
}

func (t *Tokenizer) encode(p *pacer, text source, around template) ([]int32, error) {
	if !valid(p, text.text) {
		return nil, fmt.Errorf("tokenizer: %w", ErrNotUTF8)
	}
	w := t.encoder(p, around.prefix, len(text.text))
	emit := w.encoding()
	for i, s := range t.added.split(p, text) {
		if s.id >= 0 {
			w.out = append(w.out, s.id)
			continue
		}
		if err := t.pre.split(p, s.text, i == 0, emit); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	return append(w.out, around.suffix...), nil
}

// valid reports whether text is UTF-8. It checks by parts, to yield between them.
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
		p.spent(part)
	}
	return utf8.ValidString(text)
}

// Vocab returns the number of ids, added tokens included. Every id is below it.
func (t *Tokenizer) Vocab() int { return len(t.tokens) }

// ModelVocab returns the number of ids without those that only added tokens have. Published
// checkpoints have added tokens without a row in the embedding, and a larger model vocabulary
// belongs to another checkpoint.
func (t *Tokenizer) ModelVocab() int { return t.modelVocab }

// MaxTokenBytes returns the most bytes of text, before normalisation, that one token can
// stand for. A text of more than n·MaxTokenBytes bytes has more than n tokens, unless added
// tokens, the normalizer or the pre-tokenizer remove characters from it, or join them, as runs of
// spaces, or the vocabulary lacks them.
func (t *Tokenizer) MaxTokenBytes() int { return t.longest * t.normalizer.shrinks() }

// ID returns the id of a token. Its content is spelled as in tokenizer.json, for example
// "<|endoftext|>" or "Ġthe".
func (t *Tokenizer) ID(content string) (int32, bool) {
	id, ok := t.ids[content]
	return id, ok
}

// TokenText returns the text of one token on its own, including special tokens. Invalid
// UTF-8 becomes U+FFFD. An id without a token gives "".
func (t *Tokenizer) TokenText(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) {
		return ""
	}
	text, rest := lossy([]byte(t.tokens[id].bytes))
	return text + flush(rest)
}

// Differs reports whether t and o have different tokens for some id, and the first such id. Ids that only one of them
// has do not count.
func (t *Tokenizer) Differs(o *Tokenizer) (id int32, differs bool) {
	for i := range min(len(t.tokens), len(o.tokens)) {
		a, b := &t.tokens[i], &o.tokens[i]
		if a.used && b.used && a.bytes != b.bytes {
			return int32(i), true
		}
	}
	return 0, false
}

// TokenBytes returns the bytes that a token adds to decoded text, which may be a part of a character. It returns
// false for a token that decoded text omits, for a control token and for an id without a token.
func (t *Tokenizer) TokenBytes(id int32) (string, bool) {
	if !t.shown(id) || t.isControl(id) {
		return "", false
	}
	return t.tokens[id].bytes, true
}
