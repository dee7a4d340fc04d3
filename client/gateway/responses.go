package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// routesResponses adds OpenAI's responses. None is stored, so what names a stored one is refused.
func (g *Gateway) routesResponses(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/responses", g.api(g.respond))
	mux.HandleFunc("POST /v1/responses/input_tokens", g.api(g.countResponse))
	mux.HandleFunc("/v1/responses/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, refuse(http.StatusNotFound, "not_stored", r.Method+" "+r.URL.Path+
			" is not served: this server stores no responses"))
	})
}

// responsesRequest is the body of /v1/responses. Of fields it takes the sampling, Reel's own names included.
type responsesRequest struct {
	fields
	Input             responsesInput      `json:"input"`
	Instructions      *string             `json:"instructions"`
	MaxOutputTokens   *int                `json:"max_output_tokens"`
	Text              responsesText       `json:"text"`
	Tools             []responsesTool     `json:"tools"`
	ToolChoice        responsesToolChoice `json:"tool_choice"`
	ParallelToolCalls *bool               `json:"parallel_tool_calls"`
	Reasoning         *responsesReasoning `json:"reasoning"`
	Include           []string            `json:"include"`
	TopLogprobs       *int                `json:"top_logprobs"`
	Background        bool                `json:"background"`
	// ChatTemplateKwargs are variables of the chat template, as in chats.
	ChatTemplateKwargs variables `json:"chat_template_kwargs"`

	PreviousResponseID json.RawMessage `json:"previous_response_id"` // from here on refused
	Conversation       json.RawMessage `json:"conversation"`
	Prompt             json.RawMessage `json:"prompt"`
	Moderation         json.RawMessage `json:"moderation"`

	Metadata         map[string]string `json:"metadata"` // from here on repeated in the answer
	MaxToolCalls     *int              `json:"max_tool_calls"`
	User             *string           `json:"user"`
	SafetyIdentifier *string           `json:"safety_identifier"`
	PromptCacheKey   *string           `json:"prompt_cache_key"`
}

// responsesText says of what form the text is.
type responsesText struct {
	Format *responsesFormat `json:"format"`
}

// responsesFormat is a response_format without the object json_schema around a schema.
type responsesFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Strict      *bool           `json:"strict"`
}

// format returns the protocol's format, or nil for any text.
func (f *responsesFormat) format() (*client.Format, error) {
	if f == nil {
		return nil, nil
	}
	switch f.Type {
	case "text":
		return nil, nil
	case "json_object":
		return &client.Format{JSON: true}, nil
	case "json_schema":
		if !given(f.Schema) {
			return nil, badField("text.format.schema", "it is missing")
		}
		return &client.Format{JSONSchema: string(f.Schema)}, nil
	}
	return nil, badField("text.format.type", "want text, json_object or json_schema")
}

// responsesReasoning says how much a model thinks.
type responsesReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

// responsesTool is a tool, of which a function alone is one that the client runs.
type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// responsesToolChoice is a word, or the name of a function.
type responsesToolChoice struct{ toolChoice }

// UnmarshalJSON decodes none, auto, required or an object that names a function.
func (t *responsesToolChoice) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if text[0] == '"' {
		return json.Unmarshal(text, &t.word)
	}
	var named responsesTool
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	if t.name = named.Name; named.Type != "function" || t.name == "" {
		return badField("tool_choice", `want none, auto, required or {"type": "function", "name": …}`)
	}
	return nil
}

// requests returns the protocol's request for q.
func (q *responsesRequest) requests(l client.Limits) ([]client.Request, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	q.MaxTokens = q.MaxOutputTokens
	req, err := q.request(l.Context, l)
	if err != nil {
		return nil, err
	}
	if req.Format, err = q.Text.Format.format(); err != nil {
		return nil, err
	}
	if req.Messages, err = q.messages(); err != nil {
		return nil, err
	}
	req.Reasoning = protocol.ReasoningApart
	req.Template = q.ChatTemplateKwargs.withEffort(q.effort())
	if req.Logprobs, err = logprobs(q.logprobs(), q.TopLogprobs); err != nil {
		return nil, err
	}
	if err := q.applyTools(&req); err != nil {
		return nil, err
	}
	return q.repeated(req, 1), nil
}

// check refuses what a response cannot follow. A truncation of auto is no such field: where it would drop items, the
// prompt is too long, and that is an error of its own.
func (q *responsesRequest) check() error {
	for name, value := range map[string]json.RawMessage{
		"previous_response_id": q.PreviousResponseID, "conversation": q.Conversation,
	} {
		if !absent(value) {
			return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: name, message: name +
				" is not supported: this server stores no responses (send all items of the conversation as input)"}
		}
	}
	switch {
	case q.Background:
		return unsupported("background")
	case !absent(q.Prompt):
		return unsupported("prompt")
	case !absent(q.Moderation):
		return unsupported("moderation")
	case q.ResponseFormat != nil:
		return badField("response_format", "responses name it text.format")
	case q.MaxTokens != nil:
		return badField("max_tokens", "responses name it max_output_tokens")
	case q.N != nil && *q.N != 1:
		return badField("n", "want 1: a response has one choice")
	case q.MaxOutputTokens != nil && *q.MaxOutputTokens < 1:
		return badField("max_output_tokens", "want 1 or more")
	}
	return q.refused.check()
}

// effort returns the effort of reasoning; empty: it is not given.
func (q *responsesRequest) effort() string {
	if q.Reasoning == nil || q.Reasoning.Effort == nil {
		return ""
	}
	return *q.Reasoning.Effort
}

// logprobs reports whether the answer shall have log-probabilities.
func (q *responsesRequest) logprobs() bool {
	return slices.Contains(q.Include, "message.output_text.logprobs") || q.TopLogprobs != nil && *q.TopLogprobs != 0
}

// applyTools sets the fields on tools of req.
func (q *responsesRequest) applyTools(req *client.Request) error {
	var list []toolFunction
	for i, t := range q.Tools {
		if t.Type != "function" {
			field := fmt.Sprintf("tools[%d].type", i)
			return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: field,
				message: fmt.Sprintf("%s: a tool of type %.32q is not supported: this server runs none (give functions)",
					field, t.Type)}
		}
		f := toolFunction{Name: t.Name, Parameters: t.Parameters}
		if t.Description != nil {
			f.Description = *t.Description
		}
		list = append(list, f)
	}
	text, err := chatTools(list)
	if err != nil {
		return err
	}
	f := toolFields{text, q.ToolChoice.toolChoice, q.ParallelToolCalls}
	return f.apply(req)
}

// respond answers POST /v1/responses.
func (g *Gateway) respond(w http.ResponseWriter, r *http.Request) error {
	var q responsesRequest
	m, requests, release, err := g.accept(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	a := responsesAnswer{response: q.response(m, m.sampling(r.Context(), requests[0])), parts: parts{keep: true}}
	if q.Stream {
		return g.streamed(w, r, m, requests, newResponsesStream(a))
	}
	return g.whole(w, r, m, requests, &a)
}
