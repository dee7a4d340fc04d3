package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"

	"reel.internal/reel/client"
)

// responsesInput is the input of a response: a text, or a list of items.
type responsesInput []responsesInputItem

// UnmarshalJSON decodes a text, which is the user's, or a list.
func (l *responsesInput) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		*l = make(responsesInput, 1)
		(*l)[0].Role = "user"
		return json.Unmarshal(text, &(*l)[0].Content)
	}
	return json.Unmarshal(text, (*[]responsesInputItem)(l))
}

// responsesInputItem is a message, a call of a function, what it gave, or reasoning.
type responsesInputItem struct {
	Type      string           `json:"type"` // empty: message
	Role      string           `json:"role"`
	Content   responsesContent `json:"content"`
	Summary   responsesContent `json:"summary"`
	Encrypted json.RawMessage  `json:"encrypted_content"`
	CallID    string           `json:"call_id"`
	Name      string           `json:"name"`
	Arguments string           `json:"arguments"`
	Output    responsesContent `json:"output"`
}

// responsesContent is the content of an item: a text, null, or a list of parts that are texts.
type responsesContent string

// UnmarshalJSON joins the texts of parts. Other parts are refused.
func (c *responsesContent) UnmarshalJSON(text []byte) (err error) {
	*(*string)(c), err = joined(text, "input",
		"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text")
	return err
}

// messages returns the messages of a request: its instructions, then its input.
func (q *responsesRequest) messages() ([]client.Message, error) {
	var c conversation
	if q.Instructions != nil && *q.Instructions != "" {
		c.system(*q.Instructions)
	}
	if len(q.Input) == 0 {
		return nil, badField("input", "want a text, or a list with at least one item")
	}
	for i := range q.Input {
		if err := q.Input[i].addTo(&c, fmt.Sprintf("input[%d]", i)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// addTo adds an item to a conversation. field names the item in errors.
func (m *responsesInputItem) addTo(c *conversation, field string) error {
	switch m.Type {
	case "message", "":
		return m.addMessage(c, field)
	case "function_call":
		return c.call(field, client.ToolCall{ID: m.CallID, Name: m.Name, Arguments: m.Arguments})
	case "function_call_output":
		c.result(m.CallID, string(m.Output))
		return nil
	case "reasoning":
		return m.addReasoning(c, field)
	}
	return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: field + ".type",
		message: fmt.Sprintf("%s.type: an item of type %.32q is not supported", field, m.Type)}
}

// addMessage adds a message. Most templates do not know the role developer, which is OpenAI's newer name of system.
func (m *responsesInputItem) addMessage(c *conversation, field string) error {
	switch m.Role {
	case "system", "developer":
		c.system(string(m.Content))
	case "user":
		c.user(string(m.Content))
	case "assistant":
		c.say(string(m.Content))
	default:
		return badField(field+".role", "want user, assistant, system or developer")
	}
	return nil
}

// addReasoning adds reasoning: its text, or else its summary. What another server has encrypted cannot be read.
func (m *responsesInputItem) addReasoning(c *conversation, field string) error {
	text := string(m.Content)
	if text == "" {
		text = string(m.Summary)
	}
	switch {
	case text != "":
		c.think(text)
	case given(m.Encrypted) && string(m.Encrypted) != `""`:
		return unsupported(field + ".encrypted_content")
	}
	return nil
}
