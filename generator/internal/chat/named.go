package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// saysObservation reports whether a template has results as messages of the role observation alone, and calls as
// messages with metadata, as that of GLM-4 0414 does. It leaves out messages of the role tool without an error.
func saysObservation(template string) bool {
	has := func(s string) bool { return strings.Contains(template, s) }
	return has("'observation'") && has("metadata") && !has("'tool'") && !has("tool_calls")
}

// named is [conversation] for such a template. The content of a call is the text of its arguments.
func named(messages []protocol.Message) (list []any) {
	say := func(role, content marked.Text, more ...jinja.Pair) {
		list = append(list, append(jinja.Dict{{Key: "role", Value: role}, {Key: "content", Value: content}}, more...))
	}
	for _, m := range messages {
		content := text(m.Content, m.Special)
		switch {
		case m.Role == "tool":
			say(marked.Trusted("observation"), content)
		case m.Content != "" || len(m.ToolCalls) == 0:
			say(role(m), content)
		}
		for _, c := range m.ToolCalls {
			say(role(m), marked.Data(c.Arguments), jinja.Pair{Key: "metadata", Value: marked.Data(c.Name)})
		}
	}
	return list
}

// saysHeld matches a template that writes the tools of a message as a text, as that of Phi-4-mini does with the system
// message's. It does not look at the variable tools.
var saysHeld = regexp.MustCompile(`\+ *\w+\['tools'\] *\+`)

// holding returns messages with the functions of tools in the system message, which it adds if there is none. tools is
// JSON; empty: there are none. Errors are [ErrTemplate].
func holding(messages []any, tools string) ([]any, error) {
	if tools == "" {
		return messages, nil
	}
	var list []struct{ Function json.RawMessage }
	if err := json.Unmarshal([]byte(tools), &list); err != nil {
		return nil, fmt.Errorf("%w: tools: %w", ErrTemplate, err)
	}
	functions := make([]string, len(list))
	for i, t := range list {
		functions[i] = string(t.Function)
	}
	held := jinja.Pair{Key: "tools", Value: marked.Data("[" + strings.Join(functions, ", ") + "]")}
	if len(messages) > 0 {
		if first := messages[0].(jinja.Dict); first[0].Value.(marked.Text).String() == "system" {
			messages[0] = append(first, held)
			return messages, nil
		}
	}
	system := jinja.Dict{{Key: "role", Value: marked.Trusted("system")}, {Key: "content", Value: marked.Data("")}, held}
	return append([]any{system}, messages...), nil
}
