package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// printer prints a completion.
type printer interface {
	token(client.Token) error
	// end is called once with done, or with the error that ended the completion; done
	// is then empty unless the request was cancelled.
	end(done client.Done, err error) error
}

// printer returns the printer that the flags select.
func (a *app) printer() (printer, error) {
	w := stdout()
	switch {
	case a.json && a.jsonl:
		return nil, usagef("--json and --jsonl exclude each other")
	case a.json:
		return &objectPrinter{w: w}, nil
	case a.jsonl:
		return &eventPrinter{w}, nil
	}
	return &textPrinter{w: w.answers(), terminal: w.terminal, thinker: a.thinker(w.answers(), w)}, nil
}

// closedPipe replaces EPIPE, the error of a write without a reader, by errClosedPipe.
func closedPipe(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return errClosedPipe
	}
	return err
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// textPrinter prints the text of each token at once.
type textPrinter struct {
	w        io.Writer
	terminal bool
	open     bool // the last line has no newline yet
	thinker  thinker
	calls    madeCalls
}

func (p *textPrinter) token(t client.Token) error {
	p.calls.add(t.Calls)
	if err := p.thinker.token(t); err != nil || t.Text == "" {
		return err
	}
	p.open = !strings.HasSuffix(t.Text, "\n")
	_, err := io.WriteString(p.w, t.Text)
	return err
}

// end prints the calls, each as a line, and on a terminal it ends the last line, so that the shell's prompt has its
// own.
func (p *textPrinter) end(client.Done, error) error {
	if err := p.thinker.end(); err != nil {
		return err
	}
	if p.open && (p.terminal || len(p.calls) > 0) {
		if _, err := io.WriteString(p.w, "\n"); err != nil {
			return err
		}
	}
	for _, c := range p.calls {
		if err := writeJSON(p.w, c); err != nil {
			return err
		}
	}
	return nil
}

// ending is the JSON form of a completion's end: done or an error.
type ending struct {
	*client.Done
	Error *errorJS `json:"error,omitempty"`
}

// errorJS is a failure as JSON.
type errorJS struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// endingOf returns the ending for done, or for err if there is no done.
func endingOf(done client.Done, err error) ending {
	if done.FinishReason == "" {
		f := explain(err, "")
		return ending{Error: &errorJS{f.code, f.message, f.hint}}
	}
	return ending{Done: &done}
}

// logprob is a token with its log probability and its alternatives.
type logprob struct {
	protocol.TopToken
	Top []protocol.TopToken `json:"top,omitempty"`
}

// objectPrinter prints one object at the end.
type objectPrinter struct {
	w         io.Writer
	text      strings.Builder
	reasoning strings.Builder
	calls     madeCalls
	tokens    []int32
	logprobs  []logprob
}

func (p *objectPrinter) token(t client.Token) error {
	p.text.WriteString(t.Text)
	p.reasoning.WriteString(t.Reasoning)
	p.calls.add(t.Calls)
	p.tokens = append(p.tokens, t.Token)
	if t.Logprob != nil {
		chosen := protocol.TopToken{Token: t.Token, Text: t.Text, Logprob: *t.Logprob}
		p.logprobs = append(p.logprobs, logprob{chosen, t.Top})
	}
	return nil
}

func (p *objectPrinter) end(done client.Done, err error) error {
	return writeJSON(p.w, struct {
		Text      string    `json:"text"`
		Reasoning string    `json:"reasoning,omitempty"`
		Calls     madeCalls `json:"calls,omitempty"`
		Tokens    []int32   `json:"tokens"`
		ending
		Logprobs []logprob `json:"logprobs,omitempty"`
	}{p.text.String(), p.reasoning.String(), p.calls, append([]int32{}, p.tokens...), endingOf(done, err), p.logprobs})
}

// eventPrinter prints each event as a line.
type eventPrinter struct{ w io.Writer }

func (p *eventPrinter) token(t client.Token) error {
	return writeJSON(p.w, struct {
		Type string `json:"type"`
		client.Token
	}{protocol.TypeToken, t})
}

func (p *eventPrinter) end(done client.Done, err error) error {
	e := endingOf(done, err)
	if e.Error != nil {
		return writeJSON(p.w, struct {
			Type string `json:"type"`
			*errorJS
		}{protocol.TypeError, e.Error})
	}
	return writeJSON(p.w, struct {
		Type string `json:"type"`
		ending
	}{protocol.TypeDone, e})
}
