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
	strips int                         // most spaces to drop at the beginning of a text
}

// newTokenDecoder accepts ByteLevel for BPE over bytes. For BPE over characters it accepts a
// Sequence of Replace, ByteFallback, Fuse and Strip in this order. Replace, Fuse and Strip
// are optional, but Strip requires Fuse.
func newTokenDecoder(raw json.RawMessage, characters bool) (tokenDecoder, error) {
	list, err := members(raw, "decoders")
	if err != nil {
		return tokenDecoder{}, err
	}
	if characters {
		return newSentencePieceDecoder(list)
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

// newSentencePieceDecoder builds the decoder of BPE over characters from the members of the
// Sequence.
func newSentencePieceDecoder(list []json.RawMessage) (tokenDecoder, error) {
	var d tokenDecoder
	var from, to string
	order := ""
	for _, raw := range list {
		kind, err := typeOf(raw)
		switch {
		case err != nil:
		case kind == "Replace":
			from, to, err = readReplace(raw)
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
	switch strings.TrimPrefix(order, " Replace") {
	case " ByteFallback", " ByteFallback Fuse", " ByteFallback Fuse Strip":
	default:
		return d, fmt.Errorf("%w: the decoders are%s, want Replace ByteFallback Fuse Strip", ErrUnsupported, order)
	}
	d.text = func(content string) string {
		if from != "" {
			content = strings.ReplaceAll(content, from, to)
		}
		if b, ok := byteOfContent(content); ok {
			return string([]byte{b})
		}
		return content
	}
	return d, nil
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
