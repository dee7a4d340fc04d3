package server

import (
	"testing"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// The prompt of a conversation that Gemma 4's template leaves after a turn begins the next one. What is data, or no
// conversation, stays.
func TestOpenedTurn(t *testing.T) {
	raw := generate(1, "x", 1)
	for _, c := range []struct {
		prompt marked.Text
		g      *protocol.Generate
		want   string
	}{
		{marked.Trusted("a<turn|>\n"), asking("", 1), "a<turn|>\n<|turn>model\n"}, {marked.Trusted("a<turn|>\n"), raw, "a<turn|>\n"},
		{marked.Data("a<turn|>\n"), asking("", 1), "a<turn|>\n"}, {marked.Trusted("a"), asking("", 1), "a"}, {nil, asking("", 1), ""},
	} {
		got := begun(c.prompt, c.g, gemma.Form)
		if got.String() != c.want || len(got) > 1 && got[1].Data {
			t.Errorf("%v", got)
		}
	}
}

// Only a tag of the template's own at the prompt's end opens or ends reasoning.
func TestPlaceOf(t *testing.T) {
	for _, c := range []struct {
		prompt marked.Text
		want   calls.Place
	}{
		{marked.Trusted("<a><think>\n"), calls.Within}, {marked.Trusted("<think>"), calls.Within},
		{marked.Trusted("<think></think>\n\n"), calls.After}, {marked.Trusted("<think></think>a"), calls.Before},
		{marked.Data("<think>"), calls.Before}, {marked.Trusted("a").Append("</think>", true), calls.Before},
		{nil, calls.Before},
	} {
		if got := placeOf(c.prompt, hermes.Form); got != c.want {
			t.Errorf("%v: %d", c.prompt, got)
		}
	}
	for prompt, want := range map[string]calls.Place{"<|turn>model\n<|channel>thought\n": calls.Within,
		"<|channel>thought": calls.Within, "<|channel>": calls.Within, "<|channel>thought\n<channel|>": calls.After,
		"<|turn>model\n": calls.Before, "thought\n": calls.Before} {
		if got := placeOf(marked.Trusted(prompt), gemma.Form); got != want {
			t.Errorf("%q: %d", prompt, got)
		}
	}
	if placeOf(marked.Trusted("a"), calls.Form{}) != calls.Before {
		t.Error("a form without tags has reasoning")
	}
}
