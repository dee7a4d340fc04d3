package tokenizer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"unicode"
	"unicode/utf8"
)

// Load reads tokenizer.json of a Hugging Face directory. The file is not trusted. An error
// names the faulty part and wraps ErrInvalid, ErrUnsupported, or the error of fsys.
func Load(fsys fs.FS) (*Tokenizer, error) {
	c, err := readConfig(fsys)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", fileName, err)
	}
	t, err := build(c)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", fileName, err)
	}
	return t, nil
}

func build(c *config) (*Tokenizer, error) {
	if err := checkVersion(c); err != nil {
		return nil, err
	}
	model, err := decodeModel(c.Model)
	if err != nil {
		return nil, err
	}
	return buildWith(c, model)
}

// buildWith is build with the part model.
func buildWith(c *config, model modelConfig) (t *Tokenizer, err error) {
	t = &Tokenizer{ids: make(map[string]int32, len(model.vocab)+len(c.AddedTokens)), firsts: map[int32]string{}}
	if err := t.buildText(c, model); err != nil {
		return nil, err
	}
	for content, id := range model.vocab {
		if err := t.add(content, id); err != nil {
			return nil, fmt.Errorf("model: vocab: %w", err)
		}
	}
	t.modelVocab = t.lastNotAdded(c.AddedTokens) + 1
	if err := t.addTokens(c.AddedTokens); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if err := t.buildModel(model); err != nil {
		return nil, err
	}
	if t.post, err = newTemplate(c.PostProcessor, t); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	return t, nil
}

// buildText builds the normalizer, the pre-tokenizer and the decoder.
func (t *Tokenizer) buildText(c *config, model modelConfig) (err error) {
	if t.normalizer, err = newNormalizer(c.Normalizer); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	if t.pre, err = newPreTokenizer(c.PreTokenizer, model.characters); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.decoder, err = newTokenDecoder(c.Decoder, model); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	return nil
}

func (t *Tokenizer) buildModel(model modelConfig) (err error) {
	switch {
	case model.unigram != nil:
		t.model.unigram = newUnigram(model.unigram, model.vocab, t.isControl)
	case model.wordPiece != nil:
		t.model.wordPiece = newWordPiece(model.wordPiece, t.isControl)
	default:
		t.model.bpe, err = newBPE(model.bpe, t.isControl)
	}
	return err
}

// checkVersion refuses unknown versions. It reads neither truncation nor padding: transformers
// writes those of its last call into the file, and sets them again in each call. They belong to
// no prompt.
func checkVersion(c *config) error {
	if c.Version != "1.0" {
		return fmt.Errorf("%w: version %q, want 1.0", ErrUnsupported, c.Version)
	}
	return nil
}

// modelConfig is the part model of tokenizer.json: one of bpe, unigram and wordPiece.
type modelConfig struct {
	vocab      map[string]int32
	characters bool // its tokens spell characters, not bytes
	bpe        *bpeConfig
	unigram    *unigramConfig
	wordPiece  *wordPieceConfig
}

func decodeModel(raw json.RawMessage) (m modelConfig, err error) {
	kind, err := typeOf(raw)
	switch {
	case err != nil:
	case kind == "BPE" || kind == "": // GPT-2's file has no type; its fields identify BPE
		m.bpe = new(bpeConfig)
		if err = decode(raw, m.bpe); err == nil {
			err = m.bpe.check()
		}
		m.vocab, m.characters = m.bpe.Vocab, m.bpe.ByteFallback
	case kind == "Unigram":
		m.unigram, m.characters = new(unigramConfig), true
		if err = decode(raw, m.unigram); err == nil {
			err = m.unigram.check()
		}
		if err == nil {
			m.vocab, err = m.unigram.vocab()
		}
	case kind == "WordPiece":
		m.wordPiece, m.characters = &wordPieceConfig{UnkToken: "[UNK]", Prefix: "##", Most: 100}, true
		if err = decode(raw, m.wordPiece); err == nil {
			err = m.wordPiece.check()
		}
		m.vocab = m.wordPiece.Vocab
	default:
		err = unsupported(kind)
	}
	if err != nil {
		return m, fmt.Errorf("model: %w", err)
	}
	return m, nil
}

// check refuses the options of BPE that no supported family uses.
func (c *bpeConfig) check() error {
	switch {
	case c.Dropout != nil && *c.Dropout != 0:
		return fmt.Errorf("%w: dropout", ErrUnsupported)
	case c.ContinuingSubwordPrefix != "":
		return fmt.Errorf("%w: continuing_subword_prefix", ErrUnsupported)
	case c.EndOfWordSuffix != "":
		return fmt.Errorf("%w: end_of_word_suffix", ErrUnsupported)
	}
	return nil
}

// add adds a token. It refuses an id that another token has, and a second id for a token.
func (t *Tokenizer) add(content string, id int32) error {
	if id < 0 || id >= maxVocab {
		return fmt.Errorf("%w: token %.40q: id %d, want 0 to %d", ErrInvalid, content, id, maxVocab-1)
	}
	if old, ok := t.ids[content]; ok && old != id {
		return fmt.Errorf("%w: token %.40q has the ids %d and %d", ErrInvalid, content, old, id)
	} else if ok {
		return nil
	}
	if n := int(id) + 1 - len(t.tokens); n > 0 {
		t.tokens = append(t.tokens, make([]token, n)...)
	}
	if t.tokens[id].used {
		return fmt.Errorf("%w: token %.40q: another token has the id %d", ErrInvalid, content, id)
	}
	t.ids[content] = id
	t.tokens[id].used = true
	t.setText(id, content)
	return nil
}

// setText sets the text of a token from its content.
func (t *Tokenizer) setText(id int32, content string) {
	text := t.decoder.text(content)
	t.tokens[id].bytes = text
	t.longest = max(t.longest, len(text))
	delete(t.firsts, id)
	if t.decoder.first == nil {
		return
	}
	if first := t.decoder.first(content); first != text {
		t.firsts[id] = first
	}
}

// isControl reports whether an id is that of a control token.
func (t *Tokenizer) isControl(id int32) bool { return t.tokens[id].control }

// lastNotAdded returns the largest id so far that no added token has, or -1.
func (t *Tokenizer) lastNotAdded(list []addedToken) int {
	added := make(map[int32]bool, len(list))
	for _, a := range list {
		if a.ID != nil {
			added[*a.ID] = true
		}
	}
	last := len(t.tokens) - 1
	for last >= 0 && added[int32(last)] {
		last--
	}
	return last
}

func (t *Tokenizer) addTokens(list []addedToken) error {
	if err := checkAdded(list, t.normalizer); err != nil {
		return err
	}
	for i := range list {
		a := &list[i]
		if err := t.add(a.Content, *a.ID); err != nil {
			return err
		}
		if a.Normalized { // it is found, and decoded, in its normalised form
			t.setText(*a.ID, t.normalizer.normalizeString(a.Content))
		}
		a.control = a.isControl()
		t.tokens[*a.ID].control = a.control
		t.tokens[*a.ID].special = t.tokens[*a.ID].special || a.Special
		t.longest = max(t.longest, len(a.Content), len(t.tokens[*a.ID].bytes))
	}
	var err error
	t.added, err = newAddedTokens(list, t.normalizer)
	return err
}

// checkAdded refuses incomplete and duplicate tokens. If a token strips white space, it also
// refuses tokens that begin or end with white space, since the match would be ambiguous.
func checkAdded(list []addedToken, n normalizer) error {
	var strips, spaced *addedToken
	seen := make(map[string]bool, len(list))
	for i := range list {
		a := &list[i]
		switch {
		case a.ID == nil:
			return fmt.Errorf("%w: token %.40q has no id", ErrInvalid, a.Content)
		case a.Content == "":
			return fmt.Errorf("%w: token %d is empty", ErrInvalid, *a.ID)
		case seen[a.Content]:
			return fmt.Errorf("%w: token %.40q occurs twice", ErrInvalid, a.Content)
		}
		seen[a.Content] = true
		if a.LStrip || a.RStrip {
			strips = a
		}
		content := a.Content
		if a.Normalized {
			content = n.normalizeString(content)
		}
		if edgeIsSpace(content) {
			spaced = a
		}
	}
	if strips != nil && spaced != nil {
		return fmt.Errorf("%w: token %.40q begins or ends with white space, which token %.40q strips",
			ErrUnsupported, spaced.Content, strips.Content)
	}
	return nil
}

func edgeIsSpace(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(first) || unicode.IsSpace(last)
}
