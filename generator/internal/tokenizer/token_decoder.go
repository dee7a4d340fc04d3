package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// tokenDecoder is the decoder of a tokenizer.json. It decodes single tokens; [Decoder]
// joins them into text.
type tokenDecoder struct {
	text   func(content string) string // the bytes that a token stands for
	first  func(content string) string // the same at the beginning of a text; nil: as text
	strips int                         // most spaces to drop at the beginning of a text
}

// newTokenDecoder accepts ByteLevel for BPE over bytes, and WordPiece for a model of that type. For
// other models over characters it accepts Metaspace, or a Sequence of Replace, ByteFallback, Fuse
// and Strip in this order. Replace, Fuse and Strip are optional, but Strip requires Fuse. Only
// Unigram may lack ByteFallback.
func newTokenDecoder(raw json.RawMessage, model modelConfig) (tokenDecoder, error) {
	list, err := members(raw, "decoders")
	if err != nil {
		return tokenDecoder{}, err
	}
	if model.wordPiece != nil {
		return newWordPieceDecoder(list)
	}
	if model.characters {
		return newSentencePieceDecoder(list, model.unigram != nil)
	}
	if len(list) != 1 {
		return tokenDecoder{}, fmt.Errorf("%w: %d decoders, want one of type ByteLevel", ErrUnsupported, len(list))
	}
	kind, err := typeOf(list[0])
	if err == nil && kind != "ByteLevel" {
		err = unsupported(kind)
	}
	if err == nil {
		err = decode(list[0], new(byteLevelConfig))
	}
	return tokenDecoder{text: func(content string) string {
		raw, _ := rawBytes(content)
		return raw
	}}, err
}

// newSentencePieceDecoder builds the decoder of a model over characters from the members of the
// Sequence. With plain it may lack ByteFallback.
func newSentencePieceDecoder(list []json.RawMessage, plain bool) (tokenDecoder, error) {
	if len(list) == 1 {
		if kind, err := typeOf(list[0]); err == nil && kind == "Metaspace" {
			return newMetaspaceDecoder(list[0])
		}
	}
	var d tokenDecoder
	var from, to string
	order := ""
	for _, raw := range list {
		kind, err := typeOf(raw)
		switch {
		case err != nil:
		case kind == "Replace":
			from, to, err = readReplaceDecoder(raw)
		case kind == "ByteFallback" || kind == "Fuse":
			err = decode(raw, new(struct {
				Type string `json:"type"`
			}))
		case kind == "Strip":
			d.strips, err = readStrip(raw)
		default:
			err = unsupported(kind)
		}
		if err != nil {
			return d, err
		}
		order += " " + kind
	}
	rest, bytes := strings.CutPrefix(strings.TrimPrefix(order, " Replace"), " ByteFallback")
	if !bytes && !plain || order == "" || rest != "" && rest != " Fuse" && rest != " Fuse Strip" {
		return d, fmt.Errorf("%w: the decoders are%s, want Replace ByteFallback Fuse Strip", ErrUnsupported, order)
	}
	d.text = func(content string) string {
		if from != "" {
			content = strings.ReplaceAll(content, from, to)
		}
		if !bytes {
			return content
		}
		if b, ok := byteOfContent(content); ok {
			return string([]byte{b})
		}
		return content
	}
	return d, nil
}

// newMetaspaceDecoder builds the decoder Metaspace, which makes a space of each replacement. Unless
// prepend_scheme is never, it drops those of a text's first token.
func newMetaspaceDecoder(raw json.RawMessage) (tokenDecoder, error) {
	s, err := newMetaspace(raw)
	if err != nil {
		return tokenDecoder{}, err
	}
	by := func(space string) func(string) string {
		return func(content string) string { return strings.ReplaceAll(content, s.metaspace.replacement, space) }
	}
	d := tokenDecoder{text: by(" ")}
	if s.metaspace.scheme != "never" {
		d.first = by("")
	}
	return d, nil
}

// readReplaceDecoder reads Replace with a string.
func readReplaceDecoder(raw json.RawMessage) (from, to string, err error) {
	c, err := readReplace(raw)
	if err != nil {
		return "", "", err
	}
	if c.Pattern.Regex != nil {
		return "", "", fmt.Errorf("%w: Replace: Regex in a decoder", ErrUnsupported)
	}
	return *c.Pattern.String, c.Content, nil
}

// readStrip reads Strip and returns the most spaces that it drops at the beginning.
func readStrip(raw json.RawMessage) (spaces int, err error) {
	var c struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := decode(raw, &c); err != nil {
		return 0, fmt.Errorf("Strip: %w", err)
	}
	if c.Content != " " || c.Start < 0 || c.Stop != 0 {
		return 0, fmt.Errorf("%w: Strip: content %.40q, start %d, stop %d", ErrUnsupported, c.Content, c.Start, c.Stop)
	}
	return c.Start, nil
}
