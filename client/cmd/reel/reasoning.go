package main

import (
	"io"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Values of --reasoning.
const (
	reasoningOn  = "on"
	reasoningOff = "off"
)

// thinker prints what a model thinks before it answers, dimmed where control sequences work.
type thinker struct {
	w      io.Writer // for the text
	screen *output   // for control sequences; nil: none
	shows  bool
	open   bool // the last text was reasoning
}

// thinker returns what prints reasoning to w as --reasoning says, which is on by default on a terminal.
func (a *app) thinker(w io.Writer, screen *output) thinker {
	t := thinker{w: w, shows: a.reasoning == reasoningOn}
	if screen != nil && screen.terminal {
		t.shows = a.reasoning != reasoningOff
	}
	if screen != nil && screen.draws() {
		t.screen = screen
	}
	return t
}

// token prints the reasoning of a token, and ends it before the first text.
func (t *thinker) token(token client.Token) error {
	if token.Reasoning != "" && t.shows {
		if err := t.change(true, dimmed); err != nil {
			return err
		}
		if _, err := io.WriteString(t.w, token.Reasoning); err != nil {
			return err
		}
	}
	if token.Text == "" || !t.open {
		return nil
	}
	if err := t.end(); err != nil {
		return err
	}
	_, err := io.WriteString(t.w, "\n")
	return err
}

// end ends the reasoning and its line.
func (t *thinker) end() error {
	if !t.open {
		return nil
	}
	if err := t.change(false, undimmed); err != nil {
		return err
	}
	_, err := io.WriteString(t.w, "\n")
	return err
}

// change begins or ends reasoning.
func (t *thinker) change(open bool, s sequence) error {
	if t.open == open {
		return nil
	}
	t.open = open
	if t.screen == nil {
		return nil
	}
	return t.screen.draw(s)
}

// madeCalls collects the calls of tools in an answer.
type madeCalls []protocol.ToolCall

// add adds the pieces of a token.
func (c *madeCalls) add(pieces []protocol.CallPiece) {
	for _, p := range pieces {
		if n := len(*c); n == 0 || p.Name != "" {
			*c = append(*c, protocol.ToolCall{ID: p.ID, Name: p.Name, Arguments: p.Arguments})
		} else {
			(*c)[n-1].Arguments += p.Arguments
		}
	}
}
