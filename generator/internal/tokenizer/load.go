package tokenizer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"unicode"
	"unicode/utf8"
)

// Load reads tokenizer.json of a Hugging Face directory. The file is not
// trusted. An error names what is at fault and wraps ErrInvalid,
// ErrUnsupported, or what fsys returned.
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
	if err := checkUnused(c); err != nil {
		return nil, err
	}
	model, err := decodeModel(c.Model)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{ids: make(map[string]int32, len(model.Vocab)+len(c.AddedTokens))}
	if err := t.buildText(c, model); err != nil {
		return nil, err
	}
	for content, id := range model.Vocab {
		if err := t.place(content, id); err != nil {
			return nil, fmt.Errorf("model: vocab: %w", err)
		}
	}
	if err := t.addTokens(c.AddedTokens); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.model, err = newBPE(model); err != nil {
		return nil, err
	}
	if t.post, err = newTemplate(c.PostProcessor, t); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	return t, nil
}

// buildText builds what turns text into pieces, and tokens into text. The
// decoder has to undo what the rest does.
func (t *Tokenizer) buildText(c *config, model *bpeConfig) (err error) {
	if t.normalizer, err = newNormalizer(c.Normalizer); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	if t.pre, err = newPreTokenizer(c.PreTokenizer, model); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.decoding, err = newDecoding(c.Decoder, model.ByteFallback); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	return nil
}

// checkUnused refuses the parts of a file that must be left out.
func checkUnused(c *config) error {
	for _, part := range []struct {
		name string
		raw  json.RawMessage
	}{{"truncation", c.Truncation}, {"padding", c.Padding}} {
		kind, err := typeOf(part.raw)
		if err == nil && kind != "null" {
			err = unsupported(kind)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if c.Version != "1.0" {
		return fmt.Errorf("%w: version %q, want 1.0", ErrUnsupported, c.Version)
	}
	return nil
}

func decodeModel(raw json.RawMessage) (*bpeConfig, error) {
	kind, err := typeOf(raw)
	if err == nil && kind != "BPE" && kind != "" { // GPT-2's file says none; the fields tell
		err = unsupported(kind)
	}
	c := new(bpeConfig)
	if err == nil {
		err = decode(raw, c)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return c, nil
}

// check refuses the options of BPE that the families do without.
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

// place gives id to content. An id serves one content, a content has one id.
func (t *Tokenizer) place(content string, id int32) error {
	if id < 0 || id >= maxVocab {
		return fmt.Errorf("%w: token %.40q: id %d is not below %d", ErrInvalid, content, id, maxVocab)
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
		return fmt.Errorf("%w: token %.40q: id %d has another token", ErrInvalid, content, id)
	}
	raw := t.decoding.text(content)
	t.ids[content] = id
	t.tokens[id] = token{bytes: raw, used: true}
	t.longest = max(t.longest, len(raw))
	return nil
}

func (t *Tokenizer) addTokens(list []addedToken) error {
	if err := checkAdded(list, t.normalizer); err != nil {
		return err
	}
	for _, a := range list {
		if err := t.place(a.Content, *a.ID); err != nil {
			return err
		}
		if a.Normalized { // it is found, and decodes, as the normalizer leaves it
			t.tokens[*a.ID].bytes = t.decoding.text(t.normalizer.normalize(newPacer(), a.Content))
		}
		t.tokens[*a.ID].special = t.tokens[*a.ID].special || a.Special
		t.longest = max(t.longest, len(a.Content), len(t.tokens[*a.ID].bytes))
	}
	var err error
	t.added, err = newAddedTokens(list, t.normalizer)
	return err
}

// checkAdded refuses tokens that can't be found in text without doubt.
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
			return fmt.Errorf("%w: token %.40q comes twice", ErrInvalid, a.Content)
		}
		seen[a.Content] = true
		if a.LStrip || a.RStrip {
			strips = a
		}
		content := a.Content
		if a.Normalized {
			content = n.normalize(newPacer(), content)
		}
		if edgeIsSpace(content) {
			spaced = a
		}
	}
	if strips != nil && spaced != nil {
		return fmt.Errorf("%w: token %.40q begins or ends with white space, and token %.40q strips it",
			ErrUnsupported, spaced.Content, strips.Content)
	}
	return nil
}

func edgeIsSpace(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(first) || unicode.IsSpace(last)
}
