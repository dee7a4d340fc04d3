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
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g" +
			"<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>": {Family: calls.DeepSeek},
		"<think></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```" +
			"<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>" +
			"<｜tool▁calls▁end｜>": {Family: calls.DeepSeek, Fenced: true, Begin: "<think>", End: "</think>"},
		"[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}": {Family: calls.Mistral},
		"<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": {\"a\": 7}}]": {
			Family: calls.Piped, List: true},
		"<|channel>thought\nHm.\n<channel|><|tool_call>call:f{\"a\": 1}<tool_call|><|tool_call>call:g{\"x\": [\"}\"]}" +
			"<tool_call|>": {Family: calls.Gemma, Begin: "<|channel>", End: "<channel|>", Title: "thought"},
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

// A format of each kind follows reasoning that the prompt has begun, or that the model may begin. What is divided from
// the reasoning is the format's text, whatever white space it begins with, and its end is the completion's.
func TestFollowsFormatsAfterReasoning(t *testing.T) {
	s := newService(t, vocabulary(1000))
	f := calls.Form{Begin: "<think>", End: "</think>"}
	for _, c := range []struct {
		format protocol.Format
		text   string
		open   bool // something may follow the text
	}{
		{format: protocol.Format{JSON: true}, text: `{"a": [1, "</think>"]}`},
		{format: protocol.Format{JSONSchema: `{"type": "integer"}`}, text: `-12`, open: true},
		{format: protocol.Format{Regex: `\s*[a-c]{3}`}, text: "\n\t\n\nabc"},
		{format: protocol.Format{Choice: []string{"\n(\"*\")", "b"}}, text: "\n(\"*\")"},
	} {
		for thoughts, place := range map[string]calls.Place{
			"{} a\n</think>\n\n": calls.Within, "<think>\nHm.</think>\n\n": calls.Before, "": calls.Before,
		} {
			think, _ := calls.NewThoughts(f, nil, place)
			form, _ := think.Text()
			q := s.compiledAfter(t, c.format, form)
			whole := thoughts + c.text
			n, m := walk(q, whole)
			if n != len(whole) || m.Err != nil || m.Ended == c.open || c.open && !allowed(m, 0) {
				t.Errorf("%+v: %d bytes of %q, then %+v", c.format, n, whole, m)
			}
			q.Close()
			r := calls.NewReader(calls.Options{Form: f, Apart: true, Inside: place == calls.Within, Exact: true})
			r.Push(whole)
			r.End()
			if last := r.Spans[len(r.Spans)-1]; last.Kind != calls.Text || whole[last.Start:last.End] != c.text {
				t.Errorf("%q: %+v", whole, r.Spans)
			}
		}
	}
	q := s.compiledAfter(t, protocol.Format{JSON: true}, within)
	defer q.Close()
	if n, m := walk(q, `{"a": 1} and so on`); n != 18 || allowed(m, 0) || allowed(m, 1) || !allowed(m, 3+'x') {
		t.Errorf("reasoning may end with the completion, or is not free: %d", n)
	}
}

// The tag that ends reasoning may be a control token. A model without its row refuses the format by name, and a format
// that cannot be followed is refused as without reasoning.
func TestFormatsAfterControlTokens(t *testing.T) {
	s := newService(t, vocabulary(1000))
	const control = 2 // of the synthetic vocabulary
	think, _ := calls.NewThoughts(calls.Form{Begin: "a", End: "b"}, map[int32]string{control: "b"}, calls.Within)
	form, drawn := think.Text()
	after := func(f protocol.Format, drawn ...int32) (engine.Format, error) {
		return s.CompileAfter(t.Context(), engine.User{UID: 1}, f, form, drawn)
	}
	q, err := after(protocol.Format{Choice: []string{"x"}}, drawn...)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	n, _ := walk(q.(*Sequence), "b")
	if m := next(q.(*Sequence), control); n != 1 || !allowed(m, 3+'x') || allowed(m, 3+'y') {
		t.Errorf("%+v follows a control token", m)
	}
	for code, c := range map[string]struct {
		f     protocol.Format
		token int32
	}{
		protocol.CodeFormatUnavailable: {protocol.Format{JSON: true}, 1000},
		protocol.CodeBadFormat:         {protocol.Format{JSONSchema: `{"not": {}}`}, control},
	} {
		var e *protocol.Error
		if _, err := after(c.f, c.token); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
}
