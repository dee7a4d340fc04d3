package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// maxChoices bounds the choices of a request: its prompts times n.
const maxChoices = 16

// leastTopP stands for top_p 0, which keeps the most probable token alone.
const leastTopP = 1e-6

// fields are those that chat and completions share.
type fields struct {
	Model             string             `json:"model"`
	Stream            bool               `json:"stream"`
	StreamOptions     streamOptions      `json:"stream_options"`
	N                 *int               `json:"n"`
	MaxTokens         *int               `json:"max_tokens"`
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	RepeatPenalty     *float64           `json:"repeat_penalty"`     // llama.cpp's name
	RepetitionPenalty *float64           `json:"repetition_penalty"` // vLLM's
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *seed              `json:"seed"`
	Stop              texts              `json:"stop"`
	IgnoreEOS         bool               `json:"ignore_eos"`
	ResponseFormat    *responseFormat    `json:"response_format"`
	Draft             *draft             `json:"draft"` // Reel's own
	refused
}

// names returns the name of the model that answers; empty: it is the only one.
func (f *fields) names() string { return f.Model }

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// seed is a seed of OpenAI's, which may be negative, or of Reel's.
type seed uint64

// UnmarshalJSON decodes a whole number of 64 bits.
func (s *seed) UnmarshalJSON(text []byte) error {
	if signed, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*s = seed(signed)
		return nil
	}
	unsigned, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return badField("seed", "want a whole number of 64 bits")
	}
	*s = seed(unsigned)
	return nil
}

// draft says how many tokens a step of the generator may guess: "on", "off" or a number.
type draft client.Draft

// UnmarshalJSON decodes a word or a whole number.
func (d *draft) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) != nil {
		word = string(text)
	} else if _, err := strconv.Atoi(word); err == nil { // a number is no word
		word = string(text)
	}
	parsed, e := protocol.ParseDraft(word)
	if e != nil {
		return badField("draft", fmt.Sprintf(`want "on", "off" or a number, 0 to %d`, protocol.MaxDrafts))
	}
	*d = draft(*parsed)
	return nil
}

// texts is one text or a list of them.
type texts []string

// UnmarshalJSON decodes a text or a list. The empty text is no text.
func (t *texts) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		var one string
		err := json.Unmarshal(text, &one)
		if *t = nil; one != "" {
			*t = texts{one}
		}
		return err
	}
	return json.Unmarshal(text, (*[]string)(t))
}

// choices returns how many choices a prompt gets.
func (f *fields) choices() (int, error) {
	if f.N == nil {
		return 1, nil
	}
	if *f.N < 1 || *f.N > maxChoices {
		return 0, badField("n", fmt.Sprintf("want 1 to %d", maxChoices))
	}
	return *f.N, nil
}

// request returns what the fields say of a request. Its length is otherwise where they name none, and
// at most the context: a completion ends there anyway.
func (f *fields) request(otherwise int, l client.Limits) (req client.Request, err error) {
	most := f.MaxTokens
	if most == nil {
		most = &otherwise
	}
	if *most < 1 {
		return req, badField("max_tokens", "want 1 or more")
	}
	req = client.Request{
		MaxTokens: new(min(*most, l.Context)), Temperature: f.Temperature, TopP: f.TopP, TopK: f.TopK, MinP: f.MinP,
		RepeatPenalty: f.RepeatPenalty, PresencePenalty: f.PresencePenalty, FrequencyPenalty: f.FrequencyPenalty,
		Stop: f.Stop, IgnoreEOS: f.IgnoreEOS, Draft: (*client.Draft)(f.Draft),
	}
	if req.RepeatPenalty == nil {
		req.RepeatPenalty = f.RepetitionPenalty
	}
	if f.TopP != nil && *f.TopP == 0 {
		req.TopP = new(leastTopP)
	}
	if req.LogitBias, err = f.biases(); err != nil {
		return req, err
	}
	req.Format, err = f.ResponseFormat.format()
	return req, err
}

// biases returns logit_bias, whose keys are token ids, in the order of the ids.
func (f *fields) biases() (list []client.Bias, err error) {
	for id, bias := range f.LogitBias {
		token, err := strconv.ParseInt(id, 10, 32)
		if err != nil || token < 0 || token > math.MaxInt32 {
			return nil, badField("logit_bias", fmt.Sprintf("%q is no token's id", id))
		}
		list = append(list, client.Bias{Token: int32(token), Bias: bias})
	}
	slices.SortFunc(list, func(a, b client.Bias) int { return int(a.Token) - int(b.Token) })
	return list, nil
}

// logprobs returns the number of alternatives to report; nil: no log-probabilities are wanted.
func logprobs(wanted bool, top *int) (*int, error) {
	switch {
	case !wanted:
		return nil, nil
	case top == nil:
		return new(0), nil
	case *top < 0 || *top > protocol.MaxLogprobs:
		return nil, badField("top_logprobs", fmt.Sprintf("want 0 to %d", protocol.MaxLogprobs))
	}
	return top, nil
}

// repeated returns req n times, with seeds that follow each other if there is one.
func (f *fields) repeated(req client.Request, n int) (list []client.Request) {
	for i := range n {
		if f.Seed != nil {
			req.Seed = new(uint64(*f.Seed) + uint64(i))
		}
		list = append(list, req)
	}
	return list
}

// responseFormat is OpenAI's response_format.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"`
	Schema json.RawMessage `json:"schema"` // of json_object, as llama.cpp takes it
}

// format returns the protocol's format, or nil for any text.
func (f *responseFormat) format() (*client.Format, error) {
	if f == nil {
		return nil, nil
	}
	switch f.Type {
	case "text", "":
		return nil, nil
	case "json_object":
		if given(f.Schema) {
			return &client.Format{JSONSchema: string(f.Schema)}, nil
		}
		return &client.Format{JSON: true}, nil
	case "json_schema":
		if !given(f.JSONSchema.Schema) {
			return nil, badField("response_format.json_schema.schema", "it is missing")
		}
		return &client.Format{JSONSchema: string(f.JSONSchema.Schema)}, nil
	}
	return nil, badField("response_format.type", "want text, json_object or json_schema")
}

// given reports whether a field is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
