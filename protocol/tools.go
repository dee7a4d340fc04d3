package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ToolCall is a call of a tool by the assistant, in a conversation.
type ToolCall struct {
	ID   string `msgpack:"id,omitempty" json:"id,omitempty"`
	Name string `msgpack:"name" json:"name"`
	// Arguments is the JSON text of an object.
	Arguments string `msgpack:"arguments" json:"arguments"`
}

// CallPiece is a piece of a tool call in a completion. The first piece of a call has ID and Name;
// the Arguments of its pieces, joined in order, are the JSON text of the call's arguments.
type CallPiece struct {
	Index     int    `msgpack:"index" json:"index"` // counts the calls of a completion from 0
	ID        string `msgpack:"id,omitempty" json:"id,omitempty"`
	Name      string `msgpack:"name,omitempty" json:"name,omitempty"`
	Arguments string `msgpack:"arguments,omitempty" json:"arguments,omitempty"`
}

// Choices of tools: the values of the field tool_choice of generate.
const (
	ToolNone     = "none"     // the model sees no tools and calls none
	ToolAuto     = "auto"     // the model calls tools or answers
	ToolRequired = "required" // the model calls at least one tool
)

// Ways to send reasoning: the values of the field reasoning of generate.
const (
	ReasoningText  = "text"  // as text of the completion, as the model wrote it
	ReasoningApart = "apart" // in the field reasoning of tokens
)

// MaxNameBytes bounds the name of a tool or speaker, and the id of a call.
const MaxNameBytes = 256

// checkTools checks the tools and what is said of them. Their JSON text is checked for form alone:
// it is the template that reads it.
func (g *Generate) checkTools(Limits) *Error {
	choice, name := or(g.ToolChoice, ToolAuto), or(g.ToolName, "")
	switch {
	case g.Tools == nil && (g.ToolChoice != nil || g.ToolName != nil || g.ParallelToolCalls != nil):
		return Errorf(CodeBadRequest, "leave it out, or give tools",
			"tool_choice, tool_name or parallel_tool_calls is given without tools")
	case g.Tools == nil:
		return nil
	case g.Messages == nil:
		return Errorf(CodeBadRequest, "send messages", "tools are given without messages, whose template alone shows them")
	case g.ToolChoice != nil && g.ToolName != nil:
		return Errorf(CodeBadRequest, "leave one of them out", "tool_choice and tool_name are given together")
	case choice != ToolNone && choice != ToolAuto && choice != ToolRequired:
		return Errorf(CodeBadRequest, "correct the field or leave it out",
			"tool_choice is %.64q: it must be none, auto or required", choice)
	case g.Format != nil && (choice == ToolRequired || name != ""):
		return Errorf(CodeBadRequest, "leave one of them out", "a format and a call that is required are given together")
	}
	if e := checkJSON("tools", *g.Tools); e != nil {
		return e
	}
	return checkToolNames(*g.Tools, name)
}

// checkToolNames checks that text is a list of tools with names, which differ, and one of which is
// chosen unless chosen is empty.
func checkToolNames(text, chosen string) *Error {
	const hint = `tools is a list of objects {"type": "function", "function": {"name": …, "description": …, "parameters": …}}`
	var tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal([]byte(text), &tools); err != nil {
		return Errorf(CodeBadRequest, hint, "tools is no list of tools")
	}
	seen := map[string]bool{}
	for i, t := range tools {
		name := t.Function.Name
		switch {
		case name == "" || len(name) > MaxNameBytes:
			return Errorf(CodeBadRequest, hint, "tools[%d] has a name of %d bytes: it must have 1 to %d", i, len(name), MaxNameBytes)
		case seen[name]:
			return Errorf(CodeBadRequest, "give each tool a name of its own", "tools has two tools of the name %q", name)
		}
		seen[name] = true
	}
	if chosen != "" && !seen[chosen] {
		return Errorf(CodeBadRequest, "name one of tools", "tool_name is %.64q, which is no tool of the request", chosen)
	}
	return nil
}

// checkReasoning checks the field reasoning.
func (g *Generate) checkReasoning(Limits) *Error {
	switch or(g.Reasoning, ReasoningText) {
	case ReasoningText, ReasoningApart:
		return nil
	}
	return Errorf(CodeBadRequest, "correct the field or leave it out",
		"reasoning is %.64q: it must be text or apart", *g.Reasoning)
}

// check checks the lengths of a message's names, and its calls.
func (m *Message) check(i int) *Error {
	for field, text := range map[string]string{"name": m.Name, "tool_call_id": m.ToolCallID} {
		if len(text) > MaxNameBytes {
			return tooLong(fmt.Sprintf("messages[%d].%s", i, field), len(text), MaxNameBytes)
		}
	}
	for k, call := range m.ToolCalls {
		field := fmt.Sprintf("messages[%d].tool_calls[%d]", i, k)
		if len(call.ID) > MaxNameBytes || len(call.Name) > MaxNameBytes || call.Name == "" {
			return Errorf(CodeBadRequest, "correct the field",
				"%s has a name of %d bytes and an id of %d: a name has 1 to %d, an id at most as many",
				field, len(call.Name), len(call.ID), MaxNameBytes)
		}
		if e := checkJSON(field+".arguments", call.Arguments); e != nil {
			return e
		}
	}
	return nil
}

// textBytes returns the bytes of a message's texts, which become a part of the prompt.
func (m *Message) textBytes() int {
	n := len(m.Content) + len(m.Reasoning) + len(m.Name) + len(m.ToolCallID)
	for _, call := range m.ToolCalls {
		n += len(call.ID) + len(call.Name) + len(call.Arguments)
	}
	return n
}

// checkJSON checks the size, the syntax and the depth of a JSON text.
func checkJSON(field, text string) *Error {
	if len(text) > MaxJSONBytes {
		return tooLong(field, len(text), MaxJSONBytes)
	}
	if depth := jsonDepth(text); depth > MaxJSONDepth {
		return Errorf(CodeBadRequest, "nest it less", "%s is nested more than %d deep", field, MaxJSONDepth)
	}
	if !json.Valid([]byte(text)) {
		return Errorf(CodeBadRequest, "send JSON", "%s is not JSON: %.64q", field, text)
	}
	return nil
}

// jsonDepth returns the greatest number of nested objects and lists of a JSON text. Of a text that
// is not JSON it returns some number.
func jsonDepth(text string) (most int) {
	depth := 0
	for quoted := false; text != ""; text = text[1:] {
		switch c := text[0]; {
		case quoted && c == '\\' && len(text) > 1:
			text = text[1:]
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte("[{", c) >= 0:
			depth++
			most = max(most, depth)
		case !quoted && strings.IndexByte("]}", c) >= 0:
			depth--
		}
	}
	return most
}
