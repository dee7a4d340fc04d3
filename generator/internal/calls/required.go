package calls

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// ErrNoForm says that the template shows no form of calls that this package knows, or none for the name of a tool.
var ErrNoForm = errors.New("the chat template shows no known form of calls of these tools")

// ErrElements says that the family writes parameters as elements, which no format enforces.
var ErrElements = errors.New("the model writes a call's parameters as elements, <parameter=…> or <arg_key>, " +
	"which no format enforces")

// Tool is what a call needs of a tool.
type Tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"` // a JSON Schema; empty: any object
}

// Required is the form of a completion that has to call tools, as reel-format takes it.
type Required struct {
	Think   *thought `json:"think"`
	Begin   []part   `json:"begin"`
	Calls   []call   `json:"calls"`
	Between []part   `json:"between"` // of several calls; nil: there is one call
	End     []part   `json:"end"`

	control map[string]int32 // the markers that are control tokens
	drawn   []int32          // those of them that the completion may have
}

// thought allows reasoning before the calls. Without Begin it has begun already.
type thought struct {
	Begin []part `json:"begin"`
	End   part   `json:"end"`
}

// call is one call: what is written before and after its arguments, and their schema.
type call struct {
	Head   []part          `json:"head"`
	Schema json.RawMessage `json:"schema"`
	Tail   []part          `json:"tail"`
}

// part is a text or a control token.
type part struct {
	Text  string `json:"text,omitempty"`
	Token *int32 `json:"token,omitempty"`
}

// NewRequired returns the form of a completion that calls one of tools, or several of them unless single. control has
// the markers among control tokens, and inside says that the prompt ends within reasoning. Errors: [ErrNoForm],
// [ErrElements].
func NewRequired(f Form, control map[int32]string, tools []Tool, single, inside bool) (*Required, error) {
	if f.Family == Coder || f.Family == GLM {
		return nil, ErrElements
	}
	r := &Required{control: tokensOf(control)}
	r.think(f, inside)
	for _, t := range tools {
		c := call{Schema: t.Parameters}
		if len(c.Schema) == 0 || string(c.Schema) == "null" {
			c.Schema = json.RawMessage("{}")
		}
		name, _ := json.Marshal(t.Name) // a string has JSON
		r.Calls = append(r.Calls, r.around(c, f, t.Name, string(name)))
	}
	switch {
	case f.List:
		r.Begin, r.End = r.parts(map[Family]string{Mistral: toolCalls, Piped: pipeBegin}[f.Family], "["), r.parts("]")
	case f.Family == DeepSeek:
		r.Begin, r.End = r.parts(callsBegin), r.parts(callsEnd)
	}
	if !single {
		r.Between = between(f)
	}
	if f.Family == None || slices.ContainsFunc(tools, f.lacks) {
		return nil, ErrNoForm
	}
	return r, nil
}

// tokensOf returns the control tokens by their markers.
func tokensOf(control map[int32]string) map[string]int32 {
	tokens := map[string]int32{}
	for id, marker := range control {
		tokens[marker] = id
	}
	return tokens
}

// lacks reports whether the form has no call of a tool, whose name is not quoted and ends with a marker.
func (f Form) lacks(t Tool) bool {
	ends := map[Family]string{Lined: "\n", Mistral: "[{", DeepSeek: "<`\n", Gemma: "<{\n", Channelled: " <"}[f.Family]
	return ends != "" && !f.List && (strings.ContainsAny(t.Name, ends) || strings.TrimSpace(t.Name) != t.Name ||
		len(t.Name) > maxName)
}

// around sets what is written around a call's arguments. quoted is the name as JSON.
func (r *Required) around(c call, f Form, name, quoted string) call {
	switch {
	case f.Family == Tagged:
		c.Head = r.parts(callBegin, "\n"+`{"name": `+quoted+`, "arguments": `)
		c.Tail = r.parts("}\n", callEnd)
	case f.Family == Bare:
		c.Head, c.Tail = r.parts(`{"name": `+quoted+`, "parameters": `), r.parts("}")
	case f.List:
		c.Head, c.Tail = r.parts(`{"name": `+quoted+`, "arguments": `), r.parts("}")
	case f.Family == Lined:
		c.Head = r.parts(name + "\n")
	case f.Family == Channelled:
		c.Head = r.parts(channelMark, "commentary "+toTool+name+" ", constrainMark, "json", messageMark)
	case f.Family == Gemma: // no format has its quotes, but the reader takes those of JSON too
		c.Head, c.Tail = r.parts(pairsBegin, callWord+name), r.parts(pairsEnd)
	case f.Family == DeepSeek && f.Fenced:
		c.Head = r.parts(oneBegin, function, separator, name+"\n"+fenceBegin+"\n")
		c.Tail = r.parts("\n"+fenceEnd, oneEnd)
	case f.Family == DeepSeek:
		c.Head, c.Tail = r.parts(oneBegin, name, separator), r.parts(oneEnd)
	default:
		c.Head = r.parts(toolCalls, name, argsMark)
	}
	return c
}

// between returns what is written between two calls; nil: the family writes one.
func between(f Form) []part {
	switch {
	case f.Family == Tagged:
		return []part{{Text: "\n"}}
	case f.List:
		return []part{{Text: ", "}}
	case f.Fenced:
		return []part{{Text: "\n"}}
	case f.Family == Mistral, f.Family == DeepSeek, f.Family == Gemma:
		return []part{}
	}
	return nil
}

// think allows reasoning if the model writes some.
func (r *Required) think(f Form, inside bool) {
	if f.End == "" {
		return
	}
	r.Think = &thought{End: r.parts(f.End)[0]}
	if !inside {
		r.Think.Begin = r.parts(f.Begin)
		if f.Title != "" {
			r.Think.Begin = append(r.Think.Begin, part{Text: f.Title + "\n"})
		}
	}
}

// parts returns texts, with control tokens for those that are.
func (r *Required) parts(texts ...string) (list []part) {
	for _, text := range texts {
		if id, is := r.control[text]; is {
			list = append(list, part{Token: &id})
			r.drawn = append(r.drawn, id)
			continue
		}
		list = append(list, part{Text: text})
	}
	return list
}

// Text returns the form for reel-format, and the control tokens that the completion may have.
func (r *Required) Text() (text string, control []int32) {
	raw, _ := json.Marshal(r) // of texts, numbers and JSON that was read
	return string(raw), r.drawn
}
