package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxValue bounds one JSON value, in bytes. The decoder buffers a whole value.
const maxValue = 1 << 20

// reader decodes the values of a JSON document one by one and fails on a value of
// more than maxValue bytes.
type reader struct {
	rest *bytes.Reader
	left int // bytes that the decoder may still read for the present value
	json *json.Decoder
}

func newReader(data []byte) *reader {
	r := &reader{rest: bytes.NewReader(data), left: maxValue}
	r.json = json.NewDecoder(r)
	r.json.DisallowUnknownFields()
	return r
}

// Read is the decoder's input.
func (r *reader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("%w: a value of more than %d bytes", ErrTooLarge, maxValue)
	}
	n, err := r.rest.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

func (r *reader) decode(v any) error {
	r.left = maxValue
	return fault(r.json.Decode(v))
}

func (r *reader) token() (json.Token, error) {
	r.left = maxValue
	t, err := r.json.Token()
	return t, fault(err)
}

// fault wraps an error of the decoder in one of this package's.
func fault(err error) error {
	if err == nil || errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrHeader, err)
}

// eachMember calls do for each member of the JSON object in data. do must decode the
// value. Duplicate names, and data after the object, are refused.
func eachMember(data []byte, do func(name string, value *reader) error) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("%w: not UTF-8", ErrHeader)
	}
	r := newReader(data)
	if t, err := r.token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: not a JSON object", ErrHeader)
	}
	if err := r.members(do); err != nil {
		return err
	}
	if _, err := r.token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the object", ErrHeader)
	}
	return nil
}

// members calls do for each member up to the end of the object that has just begun.
func (r *reader) members(do func(name string, value *reader) error) error {
	seen := map[string]bool{}
	for r.json.More() {
		t, err := r.token()
		if err != nil {
			return err
		}
		name := t.(string) // the decoder returns no other token here
		switch {
		case len(name) > maxName:
			return fmt.Errorf("%.80q…: %w: the name has %d bytes, at most %d are allowed",
				name, ErrTooLarge, len(name), maxName)
		case len(seen) > maxTensors:
			return fmt.Errorf("%w: more than %d tensors", ErrTooLarge, maxTensors)
		case seen[name]:
			return fmt.Errorf("%.80q: %w: the name occurs twice", name, ErrHeader)
		}
		seen[name] = true
		if err := do(name, r); err != nil {
			return fmt.Errorf("%.80q: %w", name, err)
		}
	}
	_, err := r.token()
	return err
}
