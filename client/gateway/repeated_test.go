package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"reel.internal/reel/client/internal/fakegen"
)

// TestRepeatedNames: a name that comes twice in one object is found, and names of different objects are not compared.
func TestRepeatedNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":2}`: "a",
		`{"messages":[{"role":"user"},{"role":"user","content":"x","content":"y"}]}`: "messages[1].content",
		`{"x":{"b":{"c":[[0,{"d":0}],[[],{"e":{},"f":[],"e":0}]]}}}`:                 "x.b.c[1][1].e",
		`{"a\u0062":1, "c":",:{}[]\"", "ab":2}`:                                      "ab",
		`[{"a":1},{"a":1,"b":{"a":1,"A":"a"},"c":["a","a"]},"a","a"]`:                "",
		`{"a":"b","b":"a","c":{"a":{"b":0}},"d":{"a":0}}`:                            "",
		` { } `: "", `[]`: "", `"a"`: "", `1`: "", `[{},{},[{}]]`: "",
		`{"a":{"b":1,"b":1},"a":2}`: "a.b",
		`[` + strings.Repeat(`{"name":[`, 100) + `{"x":1,"x":1}` + strings.Repeat(`]}`, 100) + `]`: ("[0]" + strings.Repeat(".name[0]", 100))[:mostPlace] + "…",
	} {
		got, is := repeatedName([]byte(text))
		if !json.Valid([]byte(text)) || got != want || is != (want != "") {
			t.Errorf("%.100s: %q, %v, want %q", text, got, is, want)
		}
	}
}

// TestRepeatedNamesAreRefused: in every API, and with the place.
func TestRepeatedNamesAreRefused(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true})
	const twice = `[{"role":"user","content":"a","content":"b"}]`
	for path, list := range map[string]string{"/v1/chat/completions": "messages", "/v1/responses": "input",
		"/v1/messages": "messages", "/api/chat": "messages"} {
		length := "max_tokens"
		if list == "input" {
			length = "max_output_tokens"
		}
		body := `{"` + length + `":1,"model":"fake","` + list + `":` + twice + `}`
		if status, answer := s.post(path, body); status != 400 ||
			!strings.Contains(answer, list+"[0].content: it comes twice") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
		once := strings.Replace(body, `"content":"a",`, "", 1)
		if status, answer := s.post(path, once); status != 200 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

// FuzzRepeatedName: what is found is what a decoder by tokens finds.
func FuzzRepeatedName(f *testing.F) {
	for _, seed := range []string{`{"a":1,"a":2}`, `{"a\u0062":[{"b":1}],"ab":"\\\""}`, `[{"a":{},"b":[{"c":0,"c":1}]}]`,
		`{"":0,"":[]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) { // the decoder replaces what is not UTF-8
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if _, got := repeatedName(text); got != twiceByTokens(d) {
			t.Errorf("%q: %v", text, got)
		}
	})
}

// twiceByTokens reports whether an object in the next value of d has a name twice.
func twiceByTokens(d *json.Decoder) (is bool) {
	t, _ := d.Token()
	seen := map[any]bool{}
	for (t == json.Delim('{') || t == json.Delim('[')) && d.More() {
		if t == json.Delim('{') {
			name, _ := d.Token()
			is, seen[name] = is || seen[name], true
		}
		is = twiceByTokens(d) || is
	}
	if t == json.Delim('{') || t == json.Delim('[') {
		_, _ = d.Token()
	}
	return is
}
