//go:build formats

package format

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// program returns the path of reel-format, which make builds.
func program(t testing.TB) string {
	path, err := filepath.Abs("../../../bin/" + Program)
	if name := os.Getenv("REEL_FORMAT"); name != "" {
		path, err = name, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make builds it where cargo 1.87 or newer is found", err)
	}
	return path
}

// vocabulary returns a synthetic vocabulary: two EOS tokens, a control token, the bytes, then pieces of text.
func vocabulary(tokens int) Vocabulary {
	texts := []string{"", "", ""}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}))
	}
	texts = append(texts, `{"`, `": `, `", "`, `"}`, `"]`, `}`, `[`, "true", "false", "null", "é", "日本", "\U0001f600")
	r := rand.New(rand.NewPCG(1, 2))
	for len(texts) < tokens {
		texts = append(texts, piece(r))
	}
	return Vocabulary{Tokens: tokens, EOS: []int32{0, 1}, Bytes: func(id int32) (string, bool) {
		return texts[id], id > 2
	}}
}

// piece returns a piece of text such as those of byte-level BPE.
func piece(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(2) == 0 {
		b.WriteByte(' ')
	}
	for range 2 + r.IntN(7) {
		switch r.IntN(12) {
		case 0:
			b.WriteByte("0123456789_-.,:;/"[r.IntN(17)])
		case 1:
			b.WriteByte(byte('A' + r.IntN(26)))
		default:
			b.WriteByte("etaoinshrdlucmfwypvbgkjqxz"[min(r.IntN(26), r.IntN(26))])
		}
	}
	return b.String()
}

func newService(t testing.TB, v Vocabulary) *Service {
	t.Helper()
	s, err := New(program(t), v, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *Service) compiled(t testing.TB, f protocol.Format) *Sequence {
	t.Helper()
	q, err := s.Compile(context.Background(), engine.User{UID: 1}, f)
	if err != nil {
		t.Fatal(err)
	}
	return q.(*Sequence)
}

// within is reasoning that the prompt has begun.
const within = `{"begin": null, "end": {"text": "</think>"}}`

// compiledAfter is compiled, after reasoning.
func (s *Service) compiledAfter(t testing.TB, f protocol.Format, think string) *Sequence {
	t.Helper()
	q, err := s.CompileAfter(context.Background(), engine.User{UID: 1}, f, think, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.(*Sequence)
}

func allowed(m engine.Mask, id int32) bool { return m.Words[id/32]>>(id%32)&1 == 1 }

// walk sends a text byte by byte. It returns how many bytes were allowed, and the mask after them.
func walk(q *Sequence, text string) (int, engine.Mask) {
	m := next(q, -1)
	for i, b := range []byte(text) {
		if m.Err != nil || m.Ended || !allowed(m, 3+int32(b)) {
			return i, m
		}
		m = next(q, 3+int32(b))
	}
	return len(text), m
}

// A format of each kind is followed to its end.
func TestFollowsFormats(t *testing.T) {
	s := newService(t, vocabulary(1000))
	for _, c := range []struct {
		format protocol.Format
		text   string
	}{
		{protocol.Format{Regex: "[a-c]{3}"}, "abc"},
		{protocol.Format{JSON: true}, `{"a": [1, {"b": null}], "c": "\n"}`},
		{protocol.Format{JSONSchema: `{"type": "object", "properties": {"n": {"type": "integer"}},
			"required": ["n"], "additionalProperties": false}`}, `{"n": 12}`},
		{protocol.Format{Choice: []string{"yes", "no (\"*\")"}}, `no ("*")`},
	} {
		q := s.compiled(t, c.format)
		if n, m := walk(q, c.text); n != len(c.text) || !m.Ended || m.Err != nil {
			t.Errorf("%+v: %d bytes of %q, then %+v", c.format, n, c.text, m)
		}
		q.Close()
	}
}

// EOS is allowed where the text may end, and only there; control tokens never are.
func TestEndIsWhereTheTextMayEnd(t *testing.T) {
	s := newService(t, vocabulary(1000))
	q := s.compiled(t, protocol.Format{Regex: "ab*"})
	defer q.Close()
	for i, want := range []bool{false, true, true} {
		_, m := walk(q, strings.Repeat("b", 0))
		if i > 0 {
			m = next(q, 3+int32("ab"[min(i, 2)-1]))
		}
		if allowed(m, 0) != want || allowed(m, 1) != want || allowed(m, 2) {
			t.Errorf("after %d tokens: EOS %v and %v, want %v; control token %v",
				i, allowed(m, 0), allowed(m, 1), want, allowed(m, 2))
		}
	}
}

// What cannot be followed is refused by name.
func TestRefusesByName(t *testing.T) {
	s := newService(t, vocabulary(1000))
	for format, cause := range map[*protocol.Format]string{
		{JSONSchema: `{"type": "array", "uniqueItems": true}`}:  "uniqueItems",
		{JSONSchema: `{"$ref": "https://example.com/s.json"}`}:  "https://example.com/s.json",
		{JSONSchema: `{"type": "string", "pattern": "(?=a)b"}`}: "look-around",
		{Regex: "a(b"}:        "unclosed group",
		{JSONSchema: "false"}: "no value is valid",
		{JSONSchema: `{"type": "integer", "minimum": 2, "maximum": 1}`}: "minimum",
		{JSONSchema: `{"$ref": "#"}`}:                                   "no text has this form",
	} {
		_, err := s.Compile(t.Context(), engine.User{UID: 1}, *format)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.CodeBadFormat || !strings.Contains(e.Message, cause) {
			t.Errorf("%+v: %v, want %q", *format, err, cause)
		}
	}
}

// BenchmarkMask measures the time from a token to its mask, for a vocabulary of 128,000 tokens. The text of forced
// bytes costs reel-format next to nothing, so it shows the time of the messages.
func BenchmarkMask(b *testing.B) {
	s := newService(b, vocabulary(128000))
	for name, format := range map[string]protocol.Format{
		"forced": {Regex: "a{100000}"}, "object": {JSON: true}, "schema": {JSONSchema: person},
	} {
		b.Run(name, func(b *testing.B) { benchmarkMask(b, func() *Sequence { return s.compiled(b, format) }) })
	}
	b.Run("reasoning", func(b *testing.B) {
		benchmarkMask(b, func() *Sequence { return s.compiledAfter(b, protocol.Format{JSON: true}, within) })
	})
}

const person = `{"type": "object", "properties": {
	"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
	"address": {"type": "object",
		"properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "zip"], "additionalProperties": false},
	"tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 8}},
	"required": ["name", "age", "address", "tags"], "additionalProperties": false}`

func benchmarkMask(b *testing.B, compiled func() *Sequence) {
	q := compiled()
	m := next(q, -1)
	r := rand.New(rand.NewPCG(3, 4))
	var times []time.Duration
	for b.Loop() {
		if m.Ended || len(times)%300 == 299 {
			q.Close()
			q = compiled()
			m = next(q, -1)
		}
		token := draw(r, m)
		begun := time.Now()
		m = next(q, token)
		times = append(times, time.Since(begun))
	}
	q.Close()
	slices.Sort(times)
	sum := time.Duration(0)
	for _, t := range times {
		sum += t
	}
	for name, t := range map[string]time.Duration{
		"mean-us": sum / time.Duration(len(times)), "P50-us": times[len(times)/2], "P99-us": times[len(times)*99/100],
	} {
		b.ReportMetric(float64(t.Nanoseconds())/1e3, name)
	}
}

// draw draws one of the allowed tokens, the next one after a random id.
func draw(r *rand.Rand, m engine.Mask) int32 {
	tokens := int32(32 * len(m.Words))
	begin := r.Int32N(tokens)
	for i := range tokens {
		if id := (begin + i) % tokens; id > 2 && allowed(m, id) {
			return id
		}
	}
	panic(fmt.Sprint("only EOS is allowed, and the format has not ended: ", m))
}
