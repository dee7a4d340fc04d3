package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"reel.internal/reel/client"
)

// anthropicMessage is a message in Anthropic's form. Results of tools are the user's.
type anthropicMessage struct {
	Role    string          `json:"role"`
	Content anthropicBlocks `json:"content"`
}

// anthropicBlocks is a text, or a list of blocks.
type anthropicBlocks []anthropicBlock

// UnmarshalJSON decodes a text, which is a block, or a list.
func (b *anthropicBlocks) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		*b = anthropicBlocks{{Type: "text"}}
		return json.Unmarshal(text, &(*b)[0].Text)
	}
	return json.Unmarshal(text, (*[]anthropicBlock)(b))
}

// anthropicBlock is a block of a message: text, thinking, a call of a tool, or the result of one.
type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   anthropicResult `json:"content"`
	IsError   bool            `json:"is_error"`
}

// anthropicResult is what a tool gave: a text, null, or a list of blocks that are texts.
type anthropicResult struct {
	text   string
	object bool // of a block of a kind that is refused
}

// UnmarshalJSON joins the texts of blocks. Other blocks are refused.
func (c *anthropicResult) UnmarshalJSON(text []byte) (err error) {
	if c.object = text[0] == '{'; c.object {
		return nil
	}
	c.text, err = joined(text, "messages", "text")
	return err
}

// billing begins a line that Claude Code puts before its system prompt. It differs from request to request, and says
// nothing to a model; with it no prompt would begin like the one before it.
const billing = "x-anthropic-billing-header:"

// unbilled returns a system prompt without such a line.
func unbilled(text string) string {
	if strings.HasPrefix(text, billing) {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// messages returns the messages of a request: its system prompt, then the conversation.
func (q *anthropicRequest) messages() ([]client.Message, error) {
	var c conversation
	for i, b := range q.System {
		if b.Type != "text" {
			return nil, badBlock(fmt.Sprintf("system[%d]", i), b.Type)
		}
		if text := unbilled(b.Text); text != "" {
			c.system(text)
		}
	}
	if len(q.Messages) == 0 {
		return nil, badField("messages", "want at least one message")
	}
	for i, m := range q.Messages {
		if len(m.Content) == 0 && !slices.Contains(anthropicRoles, m.Role) {
			return nil, badRole(fmt.Sprintf("messages[%d]", i))
		}
		for k := range m.Content {
			if err := m.Content[k].addTo(&c, m.Role, fmt.Sprintf("messages[%d].content[%d]", i, k)); err != nil {
				return nil, err
			}
		}
	}
	switch last := q.Messages[len(q.Messages)-1].Role; {
	case last == "assistant":
		return nil, &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: "messages",
			message: "messages: the last is the assistant's, and this server does not continue one (end with the user's)"}
	case len(c) == 0:
		return nil, badField("messages", "they have no content")
	}
	return c, nil
}

// badBlock refuses a block of a type that has no meaning where it is.
func badBlock(field, kind string) error {
	return &apiError{status: http.StatusBadRequest, code: "unsupported_value", param: field + ".type",
		message: fmt.Sprintf("%s.type: a block of type %.32q is not supported here: models read text alone", field, kind)}
}

// addTo adds a block of a role's message to a conversation. Messages of one role after another are one turn. field
// names the block in errors.
func (b *anthropicBlock) addTo(c *conversation, role, field string) error {
	switch role + " " + b.Type {
	case "user text":
		c.join("user", b.Text)
	case "system text":
		c.system(b.Text)
	case "user tool_result":
		if b.Content.object {
			return badField(field+".content", "want a text or a list of blocks")
		}
		c.result(b.ToolUseID, b.result())
	case "assistant text":
		c.say(b.Text)
	case "assistant thinking":
		c.think(b.Thinking)
	case "assistant tool_use":
		return c.call(field, client.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
	default:
		return b.refuse(role, field)
	}
	return nil
}

// refuse returns the error of a block or role that has no meaning.
func (b *anthropicBlock) refuse(role, field string) error {
	if !slices.Contains(anthropicRoles, role) {
		message, _, _ := strings.Cut(field, ".")
		return badRole(message)
	}
	return badBlock(field, b.Type)
}

// anthropicRoles are the roles of messages.
var anthropicRoles = []string{"user", "assistant", "system"}

// badRole refuses the role of a message.
func badRole(message string) error {
	return badField(message+".role", "want user, assistant or system")
}

// result returns what a tool gave. Templates know no field for errors.
func (b *anthropicBlock) result() string {
	if b.IsError {
		return "Error: " + b.Content.text
	}
	return b.Content.text
}
