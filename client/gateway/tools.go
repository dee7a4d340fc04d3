package gateway

import (
	"bytes"
	"encoding/json"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// toolFields are the fields on tools of /v1/chat/completions.
type toolFields struct {
	Tools             json.RawMessage `json:"tools"`
	ToolChoice        toolChoice      `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
}

// apply sets the fields on tools of req. Without tools, what is said of them is left out.
func (f *toolFields) apply(req *client.Request) error {
	if !absent(f.Tools) {
		req.Tools = string(f.Tools)
		req.ToolChoice, req.ToolName = f.ToolChoice.word, f.ToolChoice.name
		req.ParallelToolCalls = f.ParallelToolCalls
		return nil
	}
	if f.ToolChoice.name != "" || f.ToolChoice.word == protocol.ToolRequired {
		return badField("tool_choice", "there are no tools")
	}
	return nil
}

// toolChoice is OpenAI's tool_choice: a word, or the name of a function.
type toolChoice struct{ word, name string }

// UnmarshalJSON decodes none, auto, required or an object that names a function.
func (t *toolChoice) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if text[0] == '"' {
		return json.Unmarshal(text, &t.word)
	}
	var named chatCall
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	if t.name = named.Function.Name; named.Type != "function" || t.name == "" {
		return badField("tool_choice", `want none, auto, required or {"type": "function", "function": {"name": …}}`)
	}
	return nil
}

// chatTool is a tool in the form that the protocol and chat templates have of OpenAI's API.
type chatTool struct {
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

// toolFunction is a function that a model may call.
type toolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON Schema, whose keys keep their order
}

// chatTools returns the JSON text of a list of functions; empty: there are none.
func chatTools(list []toolFunction) (json.RawMessage, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var tools []chatTool
	for _, f := range list {
		if !given(f.Parameters) {
			f.Parameters = nil
		}
		tools = append(tools, chatTool{"function", f})
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // templates show the text as it is
	err := encoder.Encode(tools)
	return bytes.TrimSpace(text.Bytes()), err
}
