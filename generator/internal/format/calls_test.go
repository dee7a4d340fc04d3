//go:build formats

package format

import (
	"encoding/json"
	"errors"
	"testing"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// Required calls are followed in the form of each family, and what is written then is found again.
func TestFollowsCalls(t *testing.T) {
	v := vocabulary(1000)
	s := newService(t, v)
	tools := []calls.Tool{{Name: "f",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"a": {"type": "integer"}}}`)}, {Name: "g"}}
	for text, f := range map[string]calls.Form{
		"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\"," +
			" \"arguments\": {}}\n</tool_call>": {Family: calls.Tagged},
		"<think>Hm.</think>\n\n{\"name\": \"f\", \"parameters\": {\"a\": 1}" +
			"}": {Family: calls.Bare, Begin: "<think>", End: "</think>"},
		"[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {\"x\": []}}, {\"name\": \"f\", \"arguments\": {\"a\": 7}}" +
			"]": {Family: calls.Mistral, List: true},
		"[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}": {Family: calls.Mistral},
	} {
		required, err := calls.NewRequired(f, nil, tools, false, false)
		if err != nil {
			t.Fatal(err)
		}
		form, _ := required.Text()
		q, err := s.CompileCalls(t.Context(), engine.User{UID: 1}, form, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := walk(q.(*Sequence), text)
		if n != len(text) {
			t.Errorf("%d bytes of %q are allowed", n, text)
		}
		r := calls.NewReader(calls.Options{Form: f, Tools: []string{"f", "g"}, Apart: true,
			ID: func(int) string { return "" }})
		r.Push(text)
		if r.End(); r.Calls() == 0 || r.Spans[len(r.Spans)-1].Kind == calls.Text {
			t.Errorf("%q: %+v", text, r.Spans)
		}
		q.Close()
		wrong, err := s.CompileCalls(t.Context(), engine.User{UID: 1}, form, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := walk(wrong.(*Sequence), "!"+text); f.End == "" && n > 0 {
			t.Errorf("%q is allowed before %q", "!", text)
		}
		wrong.Close()
	}
}

// A control token is allowed where the form has it, and in no other format; a schema that cannot be followed is
// refused.
func TestCallsWithControlTokens(t *testing.T) {
	v := vocabulary(1000)
	s := newService(t, v)
	const control = 2 // of the synthetic vocabulary, before the bytes
	tools := []calls.Tool{{Name: "f"}}
	required, _ := calls.NewRequired(calls.Form{Family: calls.Mistral}, map[int32]string{control: "[TOOL_CALLS]"},
		tools, true, false)
	form, drawn := required.Text()
	q, err := s.CompileCalls(t.Context(), engine.User{UID: 1}, form, drawn)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if m := q.(*Sequence).first; !allowed(m, control) || allowed(m, control+1+'[') {
		t.Error("the control token is not the only one that may begin")
	}
	other := s.compiled(t, protocol.Format{Regex: "(?s).*"})
	defer other.Close()
	if allowed(other.first, control) {
		t.Error("another format allows a control token")
	}
	tools[0].Parameters = json.RawMessage(`{"properties": {"a": {"type": "array", "uniqueItems": true}}}`)
	required, _ = calls.NewRequired(calls.Form{Family: calls.Bare}, nil, tools, true, false)
	form, _ = required.Text()
	var e *protocol.Error
	if _, err := s.CompileCalls(t.Context(), engine.User{UID: 1}, form, nil); !errors.As(err, &e) || e.Code != protocol.CodeBadFormat {
		t.Errorf("%v", err)
	}
}
