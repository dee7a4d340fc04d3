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

// named is [conversation] for a template that [calls.Observes]. The content of a call is the text of its arguments.
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

// heldTools matches where a template writes the tools of a message as a text.
var heldTools = regexp.MustCompile(`\+ *\w+\['tools'\] *\+`)

// saysHeld reports whether a template writes the system message's tools as a text, as that of Phi-4-mini does, and does
// not look at the variable tools.
func saysHeld(template string) bool {
	return heldTools.MatchString(template) && !strings.Contains(strings.ReplaceAll(template, "'tools'", ""), "tools")
}

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
