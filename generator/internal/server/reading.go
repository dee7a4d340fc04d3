package server

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// reading divides a completion's text into reasoning, text and calls of tools.
type reading struct {
	*calls.Reader
	control map[int32]string // the markers among control tokens
	stops   bool             // the completion may end with a call, and not by a token that ends it
}

// newReading returns what divides a request's completion. It returns nil if nothing has to be looked for: then a
// completion costs what it costs without. place says where the prompt ends.
func newReading(model *Model, m *protocol.Generate, prompt []int32, place calls.Place) *reading {
	apart := m.Reasoning != nil && *m.Reasoning == protocol.ReasoningApart
	tools := toolNames(m)
	if m.Format != nil { // the text is the format's, so reasoning is never in it, and calls are part of it
		_, apart = model.thoughts(m, place)
		tools = nil
	}
	if model.Chat == nil || !apart && tools == nil {
		return nil
	}
	a := model.Chat.Answers()
	if (a.Form.Family == calls.None || tools == nil) && !(apart && a.Form.Reasons()) {
		return nil
	}
	o := calls.Options{
		Form: a.Form, Tools: tools, Apart: apart, Inside: place == calls.Within, ID: callIDs(m.Seed, prompt),
		Single: callsOnce(m), Exact: m.Format != nil,
	}
	if f := a.Form.Family; f == calls.Coder || f == calls.GLM || f == calls.Gemma {
		o.Types = calls.TypesOf(toolsOf(m))
	}
	for _, marker := range a.Control {
		o.Control = append(o.Control, marker)
	}
	return &reading{calls.NewReader(o), a.Control, o.Single || tools != nil && a.Form.Family == calls.Gemma}
}

// shownTools returns the tools that a request's prompt shows; empty: none.
func shownTools(m *protocol.Generate) string {
	if m.Tools == nil || m.ToolChoice != nil && *m.ToolChoice == protocol.ToolNone {
		return ""
	}
	return *m.Tools
}

// mustCall reports whether a request's completion has to call a tool.
func mustCall(m *protocol.Generate) bool {
	return m.ToolName != nil || m.ToolChoice != nil && *m.ToolChoice == protocol.ToolRequired
}

// callsOnce reports whether a request's completion may have one call alone.
func callsOnce(m *protocol.Generate) bool { return m.ParallelToolCalls != nil && !*m.ParallelToolCalls }

// toolsOf returns the tools that a request may call.
func toolsOf(m *protocol.Generate) (list []calls.Tool) {
	var read []struct{ Function calls.Tool }
	_ = json.Unmarshal([]byte(shownTools(m)), &read) // validated, or empty
	for _, t := range read {
		list = append(list, t.Function)
	}
	return list
}

// requiredTools returns the tools of which one has to be called.
func requiredTools(m *protocol.Generate) []calls.Tool {
	list := toolsOf(m)
	if m.ToolName == nil {
		return list
	}
	return slices.DeleteFunc(list, func(t calls.Tool) bool { return t.Name != *m.ToolName })
}

// toolNames returns the names of the tools that a request may call.
func toolNames(m *protocol.Generate) (names []string) {
	for _, t := range toolsOf(m) {
		names = append(names, t.Name)
	}
	return names
}

// begun returns a request's prompt, with the beginning of the answer that a format bounds if the model writes it into a
// channel, and with what the chat template lacks.
func begun(prompt marked.Text, m *protocol.Generate, f calls.Form) marked.Text {
	last := len(prompt) - 1
	switch {
	case m.Messages == nil:
	case f.Channels && m.Format != nil:
		return prompt.Append(calls.Final, false)
	case last >= 0 && !prompt[last].Data:
		return prompt.Append(f.Opening(prompt[last].Text), false)
	}
	return prompt
}

// placeOf returns where a prompt ends, as the template's own tags at its end say.
func placeOf(prompt marked.Text, f calls.Form) calls.Place {
	if len(prompt) == 0 || f.End == "" || prompt[len(prompt)-1].Data {
		return calls.Before
	}
	switch text := strings.TrimRight(prompt[len(prompt)-1].Text, " \n"); {
	case strings.HasSuffix(text, f.Begin), strings.HasSuffix(text, f.Begin+f.Title):
		return calls.Within
	case strings.HasSuffix(text, f.End):
		return calls.After
	}
	return calls.Before
}

// idDigits are those of a call's id, and idLength is their number: some templates refuse other ids.
const (
	idDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idLength = 9
)

// callIDs returns the ids of a request's calls. They follow from the seed, which is drawn if it is missing, and from
// the prompt, so that the turns of a conversation have different ones.
func callIDs(seed *uint64, prompt []int32) func(index int) string {
	if seed == nil {
		seed = new(randomSeed())
	}
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, *seed) // a hash takes all bytes
	_ = binary.Write(h, binary.LittleEndian, prompt)
	from := h.Sum(nil)
	return func(index int) string {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(from[:len(from):len(from)], uint64(index)))
		rest := binary.LittleEndian.Uint64(sum[:])
		id := make([]byte, idLength)
		for i := range id {
			id[i] = idDigits[rest%uint64(len(idDigits))]
			rest /= uint64(len(idDigits))
		}
		return string(id)
	}
}

// marker returns the marker that a token is; empty: it is none.
func (r *reading) marker(token int32) string {
	if r == nil {
		return ""
	}
	return r.control[token]
}

// mayStop reports whether the completion may end with a call.
func (r *reading) mayStop() bool { return r != nil && r.stops }

// push adds text.
func (r *reading) push(text string) {
	if r != nil {
		r.Push(text)
	}
}

// end ends the text.
func (r *reading) end() {
	if r != nil {
		r.End()
	}
}

// calls returns the number of complete calls.
func (r *reading) calls() int {
	if r == nil {
		return 0
	}
	return r.Calls()
}

// divide sets what a token completes from its text, which is decided and begins at an offset of the completion's text.
func (r *reading) divide(t *protocol.Token, start int) {
	text, end := t.Text, start+len(t.Text)
	t.Text = ""
	used := 0
	for i := range r.Spans {
		s := &r.Spans[i]
		if s.Start > end || s.Start == end && !s.After {
			break
		}
		part := text[max(s.Start, start)-start : min(s.End, end)-start]
		switch s.Kind {
		case calls.Text:
			t.Text += part
		case calls.Reasoning:
			t.Reasoning += part
		case calls.Call:
			t.Calls = append(t.Calls, protocol.CallPiece{Index: s.Index, ID: s.ID, Name: s.Name, Arguments: s.Arguments})
		case calls.Arguments:
			addArguments(t, s.Index, s.Part(part))
		}
		if s.End > end {
			s.Start = end
			break
		}
		used++
	}
	r.Spans = append(r.Spans[:0], r.Spans[used:]...)
}

// addArguments adds a piece of a call's arguments.
func addArguments(t *protocol.Token, index int, part string) {
	if n := len(t.Calls); n > 0 && t.Calls[n-1].Index == index {
		t.Calls[n-1].Arguments += part
		return
	}
	t.Calls = append(t.Calls, protocol.CallPiece{Index: index, Arguments: part})
}
