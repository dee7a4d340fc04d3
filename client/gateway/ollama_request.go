package gateway

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// ollamaRequest has the fields of /api/generate and /api/chat that Reel reads. Others, such as
// keep_alive, change no token and are ignored.
type ollamaRequest struct {
	Model       string            `json:"model"`
	Stream      *bool             `json:"stream"` // nil: true
	Format      json.RawMessage   `json:"format"`
	Options     ollamaOptions     `json:"options"`
	Think       any               `json:"think"` // nil, a bool, or a level
	Images      []json.RawMessage `json:"images"`
	Logprobs    bool              `json:"logprobs"`
	TopLogprobs int               `json:"top_logprobs"`

	Prompt   string  `json:"prompt"` // from here on of generate
	System   string  `json:"system"`
	Template string  `json:"template"`
	Suffix   string  `json:"suffix"`
	Raw      bool    `json:"raw"`
	Context  []int32 `json:"context"`

	Messages []ollamaMessage `json:"messages"` // from here on of chat
	Tools    json.RawMessage `json:"tools"`
}

// ollamaOptions are the options that change tokens. Ollama takes 20.0 for an int.
type ollamaOptions struct {
	NumPredict       *float64 `json:"num_predict"`
	Temperature      *float64 `json:"temperature"`
	TopK             *float64 `json:"top_k"`
	TopP             *float64 `json:"top_p"`
	MinP             *float64 `json:"min_p"`
	RepeatPenalty    *float64 `json:"repeat_penalty"`
	RepeatLastN      *float64 `json:"repeat_last_n"`
	PresencePenalty  *float64 `json:"presence_penalty"`
	FrequencyPenalty *float64 `json:"frequency_penalty"`
	Seed             *float64 `json:"seed"`
	Stop             []string `json:"stop"`
}

// ollamaMessage is a message of a conversation, in requests and answers.
type ollamaMessage struct {
	Role       string            `json:"role"`
	Content    string            `json:"content"`
	Thinking   string            `json:"thinking,omitempty"`
	Images     []json.RawMessage `json:"images,omitempty"`
	ToolCalls  []ollamaCall      `json:"tool_calls,omitempty"`
	ToolName   string            `json:"tool_name,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
}

// ollamaCall is a call of a tool. Its arguments are an object, not text as in OpenAI's API.
type ollamaCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// repeatWindow is the number of tokens that repeat_penalty looks back at.
const repeatWindow = 64

// completion returns the generator's request for /api/generate. A model without a chat template takes
// the prompt as it is.
func (q *ollamaRequest) completion(limits client.Limits, chat bool) (client.Request, error) {
	for field, given := range map[string]bool{
		"template": q.Template != "", "suffix": q.Suffix != "", "context": len(q.Context) > 0,
	} {
		if given {
			return client.Request{}, badField(field, "this server cannot do that (leave it out)")
		}
	}
	r, err := q.common(limits)
	if err != nil || q.Raw || !chat && q.System == "" {
		r.Prompt = q.Prompt
		return r, err
	}
	if q.System != "" {
		r.Messages = []client.Message{{Role: "system", Content: q.System}}
	}
	r.Messages = append(r.Messages, client.Message{Role: "user", Content: q.Prompt})
	return r, q.think(&r)
}

// conversation returns the generator's request for /api/chat.
func (q *ollamaRequest) conversation(limits client.Limits) (client.Request, error) {
	r, err := q.common(limits)
	if err != nil {
		return r, err
	}
	for i, m := range q.Messages {
		if len(m.Images) > 0 {
			return r, badField(fmt.Sprintf("messages[%d].images", i), "the model reads text only (leave images out)")
		}
		r.Messages = append(r.Messages, m.message())
	}
	if !absent(q.Tools) {
		r.Tools = string(q.Tools)
	}
	return r, q.think(&r)
}

// message returns m as the protocol has it.
func (m *ollamaMessage) message() client.Message {
	out := client.Message{Role: strings.ToLower(m.Role), Content: m.Content, Reasoning: m.Thinking,
		Name: m.ToolName, ToolCallID: m.ToolCallID}
	for _, c := range m.ToolCalls {
		arguments := string(c.Function.Arguments)
		if arguments == "" || arguments == "null" {
			arguments = "{}"
		}
		out.ToolCalls = append(out.ToolCalls, client.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: arguments})
	}
	return out
}

// common returns a request with the fields that generate and chat share.
func (q *ollamaRequest) common(limits client.Limits) (r client.Request, err error) {
	if len(q.Images) > 0 {
		return r, badField("images", "the model reads text only (leave images out)")
	}
	if r.Format, err = ollamaFormat(q.Format); err != nil {
		return r, err
	}
	if q.Logprobs {
		r.Logprobs = &q.TopLogprobs
	}
	return r, q.Options.apply(&r, limits)
}

// ollamaFormat reads "json" or a JSON Schema.
func ollamaFormat(format json.RawMessage) (*client.Format, error) {
	text := strings.TrimSpace(string(format))
	switch {
	case text == "" || text == "null" || text == `""`:
		return nil, nil
	case text == `"json"`:
		return &client.Format{JSON: true}, nil
	case text[0] == '{':
		return &client.Format{JSONSchema: text}, nil
	}
	return nil, badField("format", `want "json" or a JSON Schema, an object`)
}

// apply sets the fields of r that the options name. Without num_predict, or with a negative one, an
// answer may be as long as the context.
func (o *ollamaOptions) apply(r *client.Request, limits client.Limits) error {
	r.Temperature, r.TopP, r.MinP = o.Temperature, o.TopP, o.MinP
	r.PresencePenalty, r.FrequencyPenalty, r.RepeatPenalty = o.PresencePenalty, o.FrequencyPenalty, o.RepeatPenalty
	r.Stop = o.Stop
	r.MaxTokens = &limits.Context
	for name, value := range map[string]*float64{
		"num_predict": o.NumPredict, "top_k": o.TopK, "seed": o.Seed, "repeat_last_n": o.RepeatLastN,
	} {
		if value != nil && (*value != math.Trunc(*value) || math.Abs(*value) > 1<<53) {
			return badField("options."+name, "want a whole number")
		}
	}
	if p := o.TopP; p != nil && *p == 0 {
		r.TopP = new(leastTopP)
	}
	if n := o.NumPredict; n != nil && *n > 0 {
		r.MaxTokens = new(min(int(*n), limits.Context))
	}
	if k := o.TopK; k != nil {
		r.TopK = new(min(max(int(*k), 0), limits.Vocab))
	}
	if s := o.Seed; s != nil && *s >= 0 { // -1: a random one
		r.Seed = new(uint64(*s))
	}
	return o.applyWindow(r)
}

// applyWindow refuses a repeat_penalty over another number of tokens than Reel's.
func (o *ollamaOptions) applyWindow(r *client.Request) error {
	switch n := o.RepeatLastN; {
	case n == nil, *n == repeatWindow, o.RepeatPenalty == nil, *o.RepeatPenalty == 1:
		return nil
	case *n == 0:
		r.RepeatPenalty = new(1.0)
		return nil
	}
	return badField("options.repeat_last_n",
		fmt.Sprintf("repeat_penalty looks back at %d tokens (leave it out)", repeatWindow))
}

// think takes the reasoning apart from the answer, and tells the chat template whether to ask for it.
func (q *ollamaRequest) think(r *client.Request) error {
	r.Reasoning = protocol.ReasoningApart
	switch think := q.Think.(type) {
	case nil:
	case bool:
		r.Template = map[string]any{"enable_thinking": think}
	case string:
		r.Template = map[string]any{"enable_thinking": true, "reasoning_effort": think}
	default:
		return badField("think", `want true, false, or a level such as "low"`)
	}
	return nil
}
