package gateway

import (
	"encoding/json"

	"reel.internal/reel/client"
)

// conversation puts together the messages of APIs that send reasoning, text, calls of tools and their results each as
// an item or a block of its own. A chat template wants what the assistant did in one turn as one message.
type conversation []client.Message

// system adds a system prompt to the one before it: many templates take only one, at the beginning.
func (c *conversation) system(text string) { c.join("system", text) }

// user adds a message of the user.
func (c *conversation) user(text string) {
	*c = append(*c, client.Message{Role: "user", Content: text})
}

// join adds text to the last message if that is of the role, in lines of its own, else as a new message.
func (c *conversation) join(role, text string) {
	if n := len(*c); n > 0 && (*c)[n-1].Role == role {
		m := &(*c)[n-1]
		m.Content = lines(m.Content, text)
		return
	}
	*c = append(*c, client.Message{Role: role, Content: text})
}

// lines joins two texts, each in lines of its own.
func lines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// turn returns the assistant's message that is last, or a new one where that is over.
func (c *conversation) turn(over func(*client.Message) bool) *client.Message {
	if n := len(*c); n == 0 || (*c)[n-1].Role != "assistant" || over(&(*c)[n-1]) {
		*c = append(*c, client.Message{Role: "assistant"})
	}
	return &(*c)[len(*c)-1]
}

// think adds what the assistant thought, which comes before what it said and called.
func (c *conversation) think(text string) {
	m := c.turn(func(m *client.Message) bool { return m.Content != "" || m.ToolCalls != nil })
	m.Reasoning = lines(m.Reasoning, text)
}

// say adds what the assistant said, which comes before what it called.
func (c *conversation) say(text string) {
	m := c.turn(func(m *client.Message) bool { return m.ToolCalls != nil })
	m.Content = lines(m.Content, text)
}

// call adds a call by the assistant, whose arguments are the JSON text of an object. field is where it is.
func (c *conversation) call(field string, call client.ToolCall) error {
	if call.Arguments == "" {
		call.Arguments = "{}"
	}
	if call.Name == "" || call.Arguments[0] != '{' || !json.Valid([]byte(call.Arguments)) {
		return badField(field, "a call has a name, and arguments that are an object of JSON")
	}
	m := c.turn(func(*client.Message) bool { return false })
	m.ToolCalls = append(m.ToolCalls, call)
	return nil
}

// result adds what the call with an id gave.
func (c *conversation) result(id, text string) {
	*c = append(*c, client.Message{Role: "tool", ToolCallID: id, Content: text})
}
