package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// anthropicVersions are the versions of Anthropic's API that the gateway speaks. The newer one has no temperature, top_p
// and top_k; here they are fields as Reel's own are.
var anthropicVersions = []string{"2023-06-01", "2026-10-21"}

// routesAnthropic adds the endpoints of Anthropic's API.
func (g *Gateway) routesAnthropic(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/messages", g.api(g.answerAnthropic))
	mux.HandleFunc("POST /v1/messages/count_tokens", g.api(g.countAnthropic))
}

// isAnthropic reports whether a request speaks Anthropic's API. It shares the path of models with OpenAI's.
func isAnthropic(r *http.Request) bool {
	path := r.URL.Path + "/"
	return strings.HasPrefix(path, "/v1/messages/") ||
		strings.HasPrefix(path, "/v1/models/") && r.Header.Get("Anthropic-Version") != ""
}

// anthropicModel is a model in Anthropic's form.
type anthropicModel struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
	Lifecycle   string    `json:"lifecycle"`
}

func asAnthropicModel(name string) anthropicModel {
	return anthropicModel{"model", name, name, time.Unix(started, 0).UTC(), "active"}
}

// asAnthropicList returns the list of models in Anthropic's form, in one page.
func asAnthropicList(list []openAIModel) any {
	page := struct {
		Data    []anthropicModel `json:"data"`
		HasMore bool             `json:"has_more"`
		FirstID *string          `json:"first_id"`
		LastID  *string          `json:"last_id"`
	}{Data: []anthropicModel{}}
	for _, m := range list {
		page.Data = append(page.Data, asAnthropicModel(m.ID))
	}
	if n := len(list); n > 0 {
		page.FirstID, page.LastID = &list[0].ID, &list[n-1].ID
	}
	return page
}

// anthropicRequest is the body of /v1/messages. Of fields it takes the sampling, Reel's own names included.
type anthropicRequest struct {
	fields
	Messages      []anthropicMessage   `json:"messages"`
	System        anthropicBlocks      `json:"system"`
	StopSequences []string             `json:"stop_sequences"`
	Tools         []anthropicTool      `json:"tools"`
	ToolChoice    *anthropicToolChoice `json:"tool_choice"`
	Thinking      *anthropicThinking   `json:"thinking"`
	OutputConfig  anthropicOutput      `json:"output_config"`
	OutputFormat  *anthropicFormat     `json:"output_format"` // the older name of output_config.format
	// ChatTemplateKwargs are variables of the chat template, as in chats.
	ChatTemplateKwargs variables `json:"chat_template_kwargs"`

	Container  json.RawMessage `json:"container"` // from here on refused
	MCPServers json.RawMessage `json:"mcp_servers"`
}

// anthropicTool is a tool, of which one of the client's own is called custom or has no type.
type anthropicTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// anthropicToolChoice says which tools a model calls.
type anthropicToolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

// anthropicThinking says whether a model thinks before it answers. It has no bound of its own for that: what
// max_tokens leaves is the answer's.
type anthropicThinking struct {
	Type    string `json:"type"`
	Display string `json:"display"`
}

// anthropicOutput says how a model answers.
type anthropicOutput struct {
	Effort string           `json:"effort"`
	Format *anthropicFormat `json:"format"`
}

// anthropicFormat is the form of an answer's text.
type anthropicFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// requests returns the protocol's request for q.
func (q *anthropicRequest) requests(l client.Limits) ([]client.Request, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	q.Stop = q.StopSequences
	req, err := q.request(l.Context, l)
	if err != nil {
		return nil, err
	}
	if req.Format, err = q.format(); err != nil {
		return nil, err
	}
	if req.Messages, err = q.messages(); err != nil {
		return nil, err
	}
	req.Reasoning = protocol.ReasoningApart
	if req.Template, err = q.variables(); err != nil {
		return nil, err
	}
	if err := q.applyTools(&req); err != nil {
		return nil, err
	}
	return q.repeated(req, 1), nil
}

// check refuses what a message cannot follow.
func (q *anthropicRequest) check() error {
	switch {
	case q.MaxTokens == nil:
		return badField("max_tokens", "it is missing")
	case q.N != nil && *q.N != 1:
		return badField("n", "want 1: there is one message")
	case q.ResponseFormat != nil:
		return badField("response_format", "this API names it output_config.format")
	case len(q.Stop) > 0:
		return badField("stop", "this API names it stop_sequences")
	case !absent(q.Container):
		return unsupported("container")
	case !absent(q.MCPServers):
		return unsupported("mcp_servers")
	}
	return q.refused.check()
}

// format returns the protocol's format, or nil for any text.
func (q *anthropicRequest) format() (*client.Format, error) {
	name, f := "output_config.format", q.OutputConfig.Format
	if f == nil {
		name, f = "output_format", q.OutputFormat
	}
	switch {
	case f == nil:
		return nil, nil
	case f.Type != "json_schema":
		return nil, badField(name+".type", "want json_schema")
	case !given(f.Schema):
		return nil, badField(name+".schema", "it is missing")
	}
	return &client.Format{JSONSchema: string(f.Schema)}, nil
}

// variables returns the variables for the chat template. As in Anthropic's API a model does not think unless it is
// asked to.
func (q *anthropicRequest) variables() (map[string]any, error) {
	v := variables{"enable_thinking": false}
	maps.Copy(v, q.ChatTemplateKwargs)
	if q.Thinking != nil {
		switch q.Thinking.Type {
		case "enabled", "adaptive":
			v["enable_thinking"] = true
		case "disabled":
		default:
			return nil, badField("thinking.type", "want enabled, adaptive or disabled")
		}
		if d := q.Thinking.Display; d != "" && d != "summarized" && d != "omitted" {
			return nil, badField("thinking.display", "want summarized or omitted")
		}
	}
	return v.withEffort(q.OutputConfig.Effort), nil
}

// anthropicChoices are the protocol's names of choices of tools.
var anthropicChoices = map[string]string{
	"auto": protocol.ToolAuto, "any": protocol.ToolRequired, "none": protocol.ToolNone, "tool": "",
}

// applyTools sets the fields on tools of req.
func (q *anthropicRequest) applyTools(req *client.Request) error {
	var list []toolFunction
	for i, t := range q.Tools {
		if t.Type != "" && t.Type != "custom" {
			field := fmt.Sprintf("tools[%d].type", i)
			return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: field,
				message: fmt.Sprintf("%s: a tool of type %.32q is not supported: this server runs none,"+
					" and knows no schema of Anthropic's (give tools with an input_schema)", field, t.Type)}
		}
		list = append(list, toolFunction{t.Name, t.Description, t.InputSchema})
	}
	text, err := chatTools(list)
	if err != nil {
		return err
	}
	f := toolFields{Tools: text}
	if c := q.ToolChoice; c != nil {
		word, known := anthropicChoices[c.Type]
		if !known || (c.Type == "tool") != (c.Name != "") {
			return badField("tool_choice", `want {"type": …} of auto, any or none, or {"type": "tool", "name": …}`)
		}
		f.ToolChoice = toolChoice{word, c.Name}
		if c.DisableParallel {
			f.ParallelToolCalls = new(false)
		}
	}
	return f.apply(req)
}

// checkVersion refuses another version of the API. Without one it is taken to be one of them.
func checkVersion(r *http.Request) error {
	if v := r.Header.Get("Anthropic-Version"); v != "" && !slices.Contains(anthropicVersions, v) {
		return badField("anthropic-version", "want "+strings.Join(anthropicVersions, " or "))
	}
	return nil
}

// answerAnthropic answers POST /v1/messages.
func (g *Gateway) answerAnthropic(w http.ResponseWriter, r *http.Request) error {
	if err := checkVersion(r); err != nil {
		return err
	}
	var q anthropicRequest
	m, requests, release, err := g.accept(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	a := newAnthropicAnswer(&q, m)
	if q.Stream {
		return g.streamed(w, r, m, requests, newAnthropicStream(a))
	}
	a.keep = true
	return g.whole(w, r, m, requests, &a)
}
