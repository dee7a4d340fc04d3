package main

import (
	"io"
	"os"
	"testing"

	"reel.internal/reel/client"
)

// On a terminal reasoning is dimmed, unless --reasoning=off leaves it out or control sequences do not work.
func TestReasoningOnATerminal(t *testing.T) {
	for _, c := range []struct{ term, flag, want string }{
		{"xterm", "", "\x1b[2mI think.\x1b[22m\n\nSo.\n"},
		{"xterm", reasoningOff, "So.\n"},
		{"dumb", "", "I think.\n\nSo.\n"},
	} {
		t.Setenv("TERM", c.term)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		o := &output{file: w, terminal: true, escapes: true}
		a := &app{reasoning: c.flag}
		p := textPrinter{w: o.answers(), terminal: true, thinker: a.thinker(o.answers(), o)}
		for _, token := range []client.Token{{Reasoning: "I "}, {Reasoning: "think."}, {Text: "So."}} {
			if err := p.token(token); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(client.Done{}, nil); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if got, err := io.ReadAll(r); string(got) != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		_ = r.Close()
	}
}
