package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// response is the object that /v1/responses answers. It repeats what was asked, as its readers expect.
type response struct {
	ID                 string              `json:"id"`
	Object             string              `json:"object"`
	CreatedAt          int64               `json:"created_at"`
	CompletedAt        *int64              `json:"completed_at"`
	Status             string              `json:"status"`
	Error              *responseError      `json:"error"`
	IncompleteDetails  *incompleteDetails  `json:"incomplete_details"`
	Model              string              `json:"model"`
	Instructions       *string             `json:"instructions"`
	Output             []responseItem      `json:"output"`
	Usage              *responseUsage      `json:"usage"`
	Tools              []responsesTool     `json:"tools"`
	ToolChoice         any                 `json:"tool_choice"`
	ParallelToolCalls  bool                `json:"parallel_tool_calls"`
	Text               responsesText       `json:"text"`
	Reasoning          *responsesReasoning `json:"reasoning"`
	Temperature        float64             `json:"temperature"`
	TopP               float64             `json:"top_p"`
	PresencePenalty    float64             `json:"presence_penalty"`
	FrequencyPenalty   float64             `json:"frequency_penalty"`
	TopLogprobs        int                 `json:"top_logprobs"`
	MaxOutputTokens    *int                `json:"max_output_tokens"`
	MaxToolCalls       *int                `json:"max_tool_calls"`
	Truncation         string              `json:"truncation"`
	PreviousResponseID *string             `json:"previous_response_id"`
	Store              bool                `json:"store"`
	Background         bool                `json:"background"`
	ServiceTier        string              `json:"service_tier"`
	Metadata           map[string]string   `json:"metadata"`
	User               *string             `json:"user"`
	SafetyIdentifier   *string             `json:"safety_identifier"`
	PromptCacheKey     *string             `json:"prompt_cache_key"`
}

// responseError is the reason why a response has failed.
type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// incompleteDetails are the reason why a response has ended early.
type incompleteDetails struct {
	Reason string `json:"reason"`
}

// responseUsage counts the tokens of a response.
type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"` // those that carry a part of the reasoning's text
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// responseItem is an item of an output: a message, reasoning or a call. A nil field is none of its kind.
type responseItem struct {
	Type      string            `json:"type"`
	ID        string            `json:"id"`
	Status    string            `json:"status"`
	Role      string            `json:"role,omitempty"`
	Content   []responseContent `json:"content,omitzero"`
	Summary   []responseContent `json:"summary,omitzero"`
	CallID    string            `json:"call_id,omitempty"`
	Name      string            `json:"name,omitempty"`
	Arguments *string           `json:"arguments,omitempty"`
}

// responseContent is the text of an item.
type responseContent struct {
	Type        string        `json:"type"`
	Text        string        `json:"text"`
	Annotations []struct{}    `json:"annotations,omitzero"`
	Logprobs    []chatLogprob `json:"logprobs,omitzero"`
}

// States of a response and of its items.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// sampling returns the sampling with which a conversation is answered: the request's, and the model's own defaults
// for what it leaves out. It asks the generator only for what is missing.
func (m model) sampling(ctx context.Context, req client.Request) protocol.Sampling {
	s := protocol.DefaultSampling()
	if req.Temperature == nil || req.TopP == nil {
		if status, err := m.status(ctx); err == nil && status.ChatDefaults != nil {
			s = *status.ChatDefaults
		}
	}
	if req.Temperature != nil {
		s.Temperature = *req.Temperature
	}
	if req.TopP != nil {
		s.TopP = *req.TopP
	}
	return s
}

// response returns the object of a response that has begun.
func (q *responsesRequest) response(m model, s protocol.Sampling) response {
	r := response{
		ID: "resp_" + rand.Text(), Object: "response", CreatedAt: time.Now().Unix(), Status: inProgress, Model: m.name,
		Instructions: q.Instructions, Output: []responseItem{}, Tools: []responsesTool{}, ToolChoice: q.ToolChoice.shown(),
		ParallelToolCalls: q.ParallelToolCalls == nil || *q.ParallelToolCalls, Text: q.Text, Reasoning: q.Reasoning,
		Temperature: s.Temperature, TopP: s.TopP, MaxOutputTokens: q.MaxOutputTokens, MaxToolCalls: q.MaxToolCalls,
		Truncation: "disabled", ServiceTier: "default", Metadata: q.Metadata, User: q.User,
		SafetyIdentifier: q.SafetyIdentifier, PromptCacheKey: q.PromptCacheKey,
	}
	r.Tools = append(r.Tools, q.Tools...)
	if r.Text.Format == nil {
		r.Text.Format = &responsesFormat{Type: "text"}
	}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	for to, from := range map[*float64]*float64{
		&r.PresencePenalty: q.PresencePenalty, &r.FrequencyPenalty: q.FrequencyPenalty,
	} {
		if from != nil {
			*to = *from
		}
	}
	if q.TopLogprobs != nil {
		r.TopLogprobs = *q.TopLogprobs
	}
	return r
}

// shown returns a choice of tools as it was sent, or its default.
func (t toolChoice) shown() any {
	if t.name != "" {
		return map[string]string{"type": "function", "name": t.name}
	}
	return cmp.Or(t.word, protocol.ToolAuto)
}

// MarshalJSON writes what a schema has. Readers want all of its fields, and of other forms the type alone.
func (f *responsesFormat) MarshalJSON() ([]byte, error) {
	if f.Type != "json_schema" {
		return json.Marshal(map[string]string{"type": f.Type})
	}
	type plain responsesFormat
	all := plain(*f)
	if all.Strict == nil {
		all.Strict = new(true) // the generator follows every schema
	}
	return json.Marshal(all)
}

// responsesAnswer collects a response.
type responsesAnswer struct {
	response
	parts
	ids []string // of the items, by part
}

func (a *responsesAnswer) token(_ int, t *client.Token) error { return a.take(t) }

// done ends the response.
func (a *responsesAnswer) done(_ int, d *client.Done) error {
	if a.Status = completed; d.FinishReason == protocol.FinishLength {
		a.Status, a.IncompleteDetails = incomplete, &incompleteDetails{"max_output_tokens"}
	} else {
		a.CompletedAt = new(time.Now().Unix())
	}
	if a.list == nil {
		a.part(textPart) // as readers of an answer without text expect
	}
	a.close()
	u := &responseUsage{Input: d.Usage.PromptTokens, Output: d.Usage.CompletionTokens,
		Total: d.Usage.PromptTokens + d.Usage.CompletionTokens}
	u.InputDetails.Cached, u.OutputDetails.Reasoning = d.Usage.CachedTokens, a.reasoning
	a.Usage = u
	return nil
}

// finish puts the items into the output.
func (a *responsesAnswer) finish() {
	for i, p := range a.list {
		status := completed
		if i == len(a.list)-1 {
			status = a.Status
		}
		a.Output = append(a.Output, a.item(p, status))
	}
}

// item returns the item of a part that has its whole text.
func (a *responsesAnswer) item(p *part, status string) responseItem {
	item := a.empty(p, status)
	switch text := p.text.String(); p.kind {
	case callPart:
		item.Arguments = &text
	default:
		c := p.content(text)
		c.Logprobs = append(c.Logprobs, p.logprobs...)
		item.Content = append(item.Content, c)
	}
	return item
}

// empty returns the item of a part before its text.
func (a *responsesAnswer) empty(p *part, status string) responseItem {
	item := responseItem{ID: a.id(p), Status: status}
	switch p.kind {
	case reasoningPart:
		item.Type, item.Content, item.Summary = "reasoning", []responseContent{}, []responseContent{}
	case textPart:
		item.Type, item.Role, item.Content = "message", "assistant", []responseContent{}
	case callPart:
		item.Type, item.CallID, item.Name, item.Arguments = "function_call", p.id, p.name, new("")
	}
	return item
}

// itemPrefixes begin the ids of items, by the kind of part.
var itemPrefixes = [...]string{reasoningPart: "rs_", textPart: "msg_", callPart: "fc_"}

// id returns the id of a part's item.
func (a *responsesAnswer) id(p *part) string {
	if p.index == len(a.ids) {
		a.ids = append(a.ids, itemPrefixes[p.kind]+rand.Text())
	}
	return a.ids[p.index]
}

// content returns the content of reasoning or of a message.
func (p *part) content(text string) responseContent {
	if p.kind == reasoningPart {
		return responseContent{Type: "reasoning_text", Text: text}
	}
	return responseContent{Type: "output_text", Text: text, Annotations: []struct{}{}, Logprobs: []chatLogprob{}}
}
