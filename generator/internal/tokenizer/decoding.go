package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// decoding is a file's decoder, as far as it concerns tokens one by one.
type decoding struct {
	text   func(content string) string // the bytes a token stands for
	strips int                         // spaces that are dropped at the beginning of a text, where there are so many
}

// newDecoding builds ByteLevel, or for BPE over characters a Sequence of Replace,
// ByteFallback, Fuse and Strip in this order; of these only ByteFallback must be
// there.
func newDecoding(raw json.RawMessage, characters bool) (decoding, error) {
	list, err := members(raw, "decoders")
	if err != nil {
		return decoding{}, err
	}
	if characters {
		return newCharacterDecoding(list)
	}
	if len(list) != 1 {
		return decoding{}, fmt.Errorf("%w: %d decoders, want ByteLevel", ErrUnsupported, len(list))
	}
	kind, err := typeOf(list[0])
	if err == nil && kind != "ByteLevel" {
		err = unsupported(kind)
	}
	if err == nil {
		err = decode(list[0], new(byteLevelConfig))
	}
	return decoding{text: func(content string) string {
		raw, _ := rawBytes(content)
		return raw
	}}, err
}

// newCharacterDecoding reads the members of the Sequence.
func newCharacterDecoding(list []json.RawMessage) (decoding, error) {
	var d decoding
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
		return d, fmt.Errorf("%w: the decoders are%s: want Replace ByteFallback Fuse Strip", ErrUnsupported, order)
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

// readStrip reads Strip, which drops up to so many spaces at the beginning.
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
