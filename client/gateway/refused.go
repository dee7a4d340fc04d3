package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
)

// refused are fields of OpenAI's, vLLM's and llama.cpp's APIs that would change an answer's meaning and
// that the gateway does not follow. Other fields that it does not know are ignored.
type refused struct {
	Suffix            json.RawMessage `json:"suffix"`
	Functions         json.RawMessage `json:"functions"` // the form of tools before 2024
	FunctionCall      json.RawMessage `json:"function_call"`
	Audio             json.RawMessage `json:"audio"`
	WebSearch         json.RawMessage `json:"web_search_options"`
	Images            json.RawMessage `json:"images"`
	Grammar           json.RawMessage `json:"grammar"`
	JSONSchema        json.RawMessage `json:"json_schema"` // outside of response_format
	GuidedJSON        json.RawMessage `json:"guided_json"`
	GuidedRegex       json.RawMessage `json:"guided_regex"`
	GuidedChoice      json.RawMessage `json:"guided_choice"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	PromptLogprobs    json.RawMessage `json:"prompt_logprobs"`
	PromptEmbeds      json.RawMessage `json:"prompt_embeds"`
	MinTokens         json.RawMessage `json:"min_tokens"`
	StopTokenIDs      json.RawMessage `json:"stop_token_ids"`
	BadWords          json.RawMessage `json:"bad_words"`
	AllowedTokenIDs   json.RawMessage `json:"allowed_token_ids"`
	TruncatePrompt    json.RawMessage `json:"truncate_prompt_tokens"`
	Mirostat          json.RawMessage `json:"mirostat"`
	BeamSearch        json.RawMessage `json:"use_beam_search"`
	ContinueFinal     json.RawMessage `json:"continue_final_message"`
}

// absent reports whether the value of a field means the same as its absence. Some clients write white space into empty
// lists and objects.
func absent(raw json.RawMessage) bool {
	if n := len(raw); n >= 2 && (raw[0] == '[' || raw[0] == '{') {
		return len(bytes.TrimSpace(raw[1:n-1])) == 0
	}
	return slices.Contains([]string{"", "null", `""`, "false", "0"}, string(raw))
}

// check refuses the first field that is used.
func (f *refused) check() error {
	if len(f.WebSearch) > 0 && f.WebSearch[0] == '{' { // an empty object asks for a search with the defaults
		return unsupported("web_search_options")
	}
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		if !absent(v.Field(i).Bytes()) {
			return unsupported(v.Type().Field(i).Tag.Get("json"))
		}
	}
	return nil
}

// unsupported refuses a field that the gateway does not follow.
func unsupported(param string) error {
	return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: param,
		message: param + " is not supported, and an answer without it would mean something else (leave it out)"}
}
