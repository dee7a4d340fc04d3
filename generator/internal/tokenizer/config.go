package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"
)

const (
	fileName = "tokenizer.json"
	maxFile  = 64 << 20 // bytes
	maxVocab = 1 << 20  // ids; four times the largest published vocabularies
)

// config is tokenizer.json.
type config struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"` // unused, like Padding; see checkVersion
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// bpeConfig is a model of type BPE.
type bpeConfig struct {
	Type                    string           `json:"type"`
	Dropout                 *float64         `json:"dropout"`
	UnkToken                *string          `json:"unk_token"` // over bytes, for bytes without a token
	ContinuingSubwordPrefix string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string           `json:"end_of_word_suffix"`
	FuseUnk                 bool             `json:"fuse_unk"`
	ByteFallback            bool             `json:"byte_fallback"`
	IgnoreMerges            bool             `json:"ignore_merges"`
	Vocab                   map[string]int32 `json:"vocab"`
	Merges                  []mergePair      `json:"merges"`
}

// byteLevelConfig holds the options of ByteLevel as pre-tokenizer, post-processor or
// decoder. In the last two roles they affect neither ids nor text.
type byteLevelConfig struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       *bool  `json:"use_regex"` // true by default
}

// mergePair is a merge, in JSON either "a b" or ["a", "b"].
type mergePair [2]string

func (p *mergePair) UnmarshalJSON(data []byte) error {
	var parts []string
	if data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		parts = strings.Split(s, " ")
	} else if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("merge %.60s has %d parts, want 2", data, len(parts))
	}
	*p = mergePair(parts)
	return nil
}

// readConfig reads tokenizer.json of fsys.
func readConfig(fsys fs.FS) (*config, error) {
	f, err := fsys.Open(fileName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrInvalid, maxFile)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrInvalid)
	}
	c := new(config)
	return c, decode(data, c)
}

// decode decodes one JSON value into v. It refuses fields that v lacks.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	switch {
	case err == nil:
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return fmt.Errorf("%w: %s", ErrUnsupported, strings.TrimPrefix(err.Error(), "json: "))
	default:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the JSON value", ErrInvalid)
	}
	return nil
}

// isNull reports whether a component is absent or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// typeOf returns the type of a component, "null" if it is absent or null.
func typeOf(raw json.RawMessage) (string, error) {
	if isNull(raw) {
		return "null", nil
	}
	var c struct{ Type string }
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c.Type, nil
}

// members returns the members of a Sequence, which it has under key. Of another component it
// returns the component itself, and of null nothing.
func members(raw json.RawMessage, key string) ([]json.RawMessage, error) {
	kind, err := typeOf(raw)
	if err != nil || kind == "null" {
		return nil, err
	}
	if kind != "Sequence" {
		return []json.RawMessage{raw}, nil
	}
	var seq map[string]json.RawMessage
	if err := json.Unmarshal(raw, &seq); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var list []json.RawMessage
	for name, value := range seq {
		switch name {
		case "type":
		case key:
			err = decode(value, &list)
		default:
			err = fmt.Errorf("%w: Sequence: unknown field %q", ErrUnsupported, name)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// unsupported returns the error for a component of an unknown type.
func unsupported(kind string) error { return fmt.Errorf("%w: type %q", ErrUnsupported, kind) }
