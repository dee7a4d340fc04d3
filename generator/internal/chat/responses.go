package chat

import (
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// saysResponses reports whether a template reads the results of calls from the message with the calls alone, as the
// first ones of Gemma 4 do. Later ones also find the messages of role tool, by their tool_call_id.
func saysResponses(template string) bool {
	return strings.Contains(template, "tool_responses") && !strings.Contains(template, "tool_call_id")
}

// folded is [conversation] with the results of calls in the message before them. The text that follows them is that
// message's too, since such a template writes all of it as one turn.
func folded(messages []protocol.Message, f form) (list []any, err error) {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		var responses []any
		for len(m.ToolCalls) > 0 && i+1 < len(messages) && messages[i+1].Role == "tool" {
			i++
			responses = append(responses, response(messages[i], m.ToolCalls))
		}
		if i+1 < len(messages) && responses != nil && m.Content == "" && follows(messages[i+1]) {
			i++
			m.Content, m.Special = messages[i].Content, messages[i].Special
		}
		d, err := message(m, f)
		if err != nil {
			return nil, err
		}
		if responses != nil {
			d = append(d, jinja.Pair{Key: "tool_responses", Value: responses})
		}
		list = append(list, d)
	}
	return list, nil
}

// follows reports whether a message is a text that follows results.
func follows(m protocol.Message) bool { return m.Role == "assistant" && len(m.ToolCalls) == 0 }

// response returns the value of the result of one of calls.
func response(m protocol.Message, calls []protocol.ToolCall) jinja.Dict {
	d := jinja.Dict{{Key: "response", Value: text(m.Content, m.Special)}}
	if at := slices.IndexFunc(calls, func(c protocol.ToolCall) bool { return c.ID == m.ToolCallID }); at >= 0 {
		m.Name = calls[at].Name
	}
	if m.Name != "" {
		d = append(d, jinja.Pair{Key: "name", Value: marked.Data(m.Name)})
	}
	return d
}
