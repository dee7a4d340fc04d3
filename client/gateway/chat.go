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
	toolFields
	Messages            []chatMessage `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Logprobs            bool          `json:"logprobs"`
	TopLogprobs         *int          `json:"top_logprobs"`
	ReasoningEffort     string        `json:"reasoning_effort"`
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

// UnmarshalJSON joins the texts of parts. Other parts are refused.
func (c *content) UnmarshalJSON(text []byte) (err error) {
	*(*string)(c), err = joined(text, "messages", "text", "refusal")
	return err
}

// joined decodes a text, null, or a list of parts of one of kinds. It joins the texts of parts, each in lines of
// its own. field is where they are.
func joined(text []byte, field string, kinds ...string) (one string, err error) {
	if text[0] != '[' {
		return one, json.Unmarshal(text, &one)
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return "", err
	}
	var list []string
	for _, p := range parts {
		if !slices.Contains(kinds, p.Type) {
			return "", &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: field,
				message: fmt.Sprintf("%s: a part of type %.32q is not supported: models read text alone", field, p.Type)}
		}
		list = append(list, p.Text+p.Refusal)
	}
	return strings.Join(list, "\n"), nil
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
			ID: call.ID, Name: call.Function.Name, Arguments: cmp.Or(call.Function.Arguments, "{}")})
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
	req.Template = q.ChatTemplateKwargs.withEffort(q.ReasoningEffort)
	if q.TopLogprobs != nil && !q.Logprobs && *q.TopLogprobs != 0 {
		return nil, badField("top_logprobs", "it needs logprobs: true")
	}
	if req.Logprobs, err = logprobs(q.Logprobs, q.TopLogprobs); err != nil {
		return nil, err
	}
	if err := q.toolFields.apply(&req); err != nil {
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

// chat answers POST /v1/chat/completions.
func (g *Gateway) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	m, requests, release, err := g.accept(w, r, &q)
	defer release()
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
