package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	fields
	Messages            []chatMessage   `json:"messages"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Logprobs            bool            `json:"logprobs"`
	TopLogprobs         *int            `json:"top_logprobs"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          toolChoice      `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	ReasoningEffort     string          `json:"reasoning_effort"`
	// ChatTemplateKwargs are variables of the chat template, as vLLM and llama.cpp take them.
	ChatTemplateKwargs variables `json:"chat_template_kwargs"`
	Modalities         []string  `json:"modalities"`
}

// chatMessage is a message in OpenAI's form.
type chatMessage struct {
	Role             string          `json:"role"`
	Content          content         `json:"content"`
	Name             string          `json:"name"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        []chatCall      `json:"tool_calls"`
	FunctionCall     json.RawMessage `json:"function_call"`
}

// chatCall is a tool call in OpenAI's form.
type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// content is the content of a message: a text, null, or a list of parts that are texts.
type content string

// UnmarshalJSON joins the texts of parts, each in lines of its own. Other parts are refused.
func (c *content) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		return json.Unmarshal(text, (*string)(c))
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	var list []string
	for _, p := range parts {
		if p.Type != "text" && p.Type != "refusal" {
			return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: "messages",
				message: fmt.Sprintf("messages: a part of type %.32q is not supported: models read text alone", p.Type)}
		}
		list = append(list, p.Text+p.Refusal)
	}
	*c = content(strings.Join(list, "\n"))
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

// message returns m for the protocol. Most templates do not know the role developer, which is
// OpenAI's newer name of system.
func (m *chatMessage) message() client.Message {
	to := client.Message{Role: m.Role, Content: string(m.Content), Name: m.Name, ToolCallID: m.ToolCallID,
		Reasoning: cmp.Or(m.ReasoningContent, m.Reasoning)}
	if to.Role == "developer" {
		to.Role = "system"
	}
	for _, call := range m.ToolCalls {
		to.ToolCalls = append(to.ToolCalls, client.ToolCall{
			ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	return to
}

// requests returns the protocol's requests for q, one for each choice.
func (q *chatRequest) requests(l client.Limits) ([]client.Request, error) {
	n, err := q.choices()
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return nil, err
	}
	if most := q.MaxCompletionTokens; most != nil { // OpenAI's newer name
		if *most < 1 {
			return nil, badField("max_completion_tokens", "want 1 or more")
		}
		q.MaxTokens = most
	}
	req, err := q.request(l.Context, l)
	if err != nil {
		return nil, err
	}
	for _, m := range q.Messages {
		req.Messages = append(req.Messages, m.message())
	}
	req.Reasoning = protocol.ReasoningApart
	req.Template = q.variables()
	if req.Logprobs, err = q.logprobs(); err != nil {
		return nil, err
	}
	if err := q.tools(&req); err != nil {
		return nil, err
	}
	return q.repeated(req, n), nil
}

// check refuses what a chat cannot follow.
func (q *chatRequest) check() error {
	if len(q.Messages) == 0 {
		return badField("messages", "want at least one message")
	}
	for i, m := range q.Messages {
		if given(m.FunctionCall) {
			return unsupported(fmt.Sprintf("messages[%d].function_call", i))
		}
		if m.Role == "" {
			return badField(fmt.Sprintf("messages[%d].role", i), "it is missing")
		}
	}
	if slices.ContainsFunc(q.Modalities, func(m string) bool { return m != "text" }) {
		return unsupported("modalities")
	}
	return q.refused.check()
}

// logprobs returns the number of alternatives to report, or nil for no log-probabilities.
func (q *chatRequest) logprobs() (*int, error) {
	switch {
	case q.TopLogprobs != nil && !q.Logprobs && *q.TopLogprobs != 0:
		return nil, badField("top_logprobs", "it needs logprobs: true")
	case !q.Logprobs:
		return nil, nil
	case q.TopLogprobs == nil:
		return new(0), nil
	case *q.TopLogprobs < 0 || *q.TopLogprobs > protocol.MaxLogprobs:
		return nil, badField("top_logprobs", fmt.Sprintf("want 0 to %d", protocol.MaxLogprobs))
	}
	return q.TopLogprobs, nil
}

// tools sets the fields on tools. Without tools, what is said of them is left out.
func (q *chatRequest) tools(req *client.Request) error {
	if !slices.Contains(unused, string(q.Tools)) {
		req.Tools = string(q.Tools)
		req.ToolChoice, req.ToolName = q.ToolChoice.word, q.ToolChoice.name
		req.ParallelToolCalls = q.ParallelToolCalls
		return nil
	}
	if q.ToolChoice.name != "" || q.ToolChoice.word == protocol.ToolRequired {
		return badField("tool_choice", "there are no tools")
	}
	return nil
}

// variables returns the variables for the chat template. Templates that know an effort read it from
// reasoning_effort; in others enable_thinking false turns the reasoning off.
func (q *chatRequest) variables() map[string]any {
	v := map[string]any(q.ChatTemplateKwargs)
	if q.ReasoningEffort == "" {
		return v
	}
	if v == nil {
		v = map[string]any{}
	}
	v["reasoning_effort"] = q.ReasoningEffort
	if q.ReasoningEffort == "none" {
		v["enable_thinking"] = false
	}
	return v
}

// chat answers POST /v1/chat/completions.
func (g *Gateway) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	release, err := g.readJSON(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	m, requests, err := g.prepare(r, q.Model, q.requests)
	if err != nil {
		return err
	}
	e := newEnvelope("chatcmpl-", "chat.completion", m)
	if q.Stream {
		e.Object = "chat.completion.chunk"
		a := &chatStream{events: newEvents(e, &q.fields), began: make([]bool, len(requests))}
		return g.streamed(w, r, m, requests, a)
	}
	a := &chatAnswer{envelope: e, Choices: make([]chatChoice, len(requests)), logprobs: q.Logprobs}
	return g.whole(w, r, m, requests, a)
}
