package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// form says how a template gets the calls of a message. Published templates differ, and no value suits all.
type form struct {
	text    bool // arguments are JSON text instead of a dict
	thinks  bool // reasoning is thinking too, beside reasoning_content
	nothing bool // the content of a message that only calls tools is none instead of an empty text
	folds   bool // results are tool_responses of the message with the calls
	names   bool // calls are messages with the tool's name as metadata, and results have the role observation
}

// saysNone matches a template that leaves out an assistant's content where it is none, and only there.
var saysNone = regexp.MustCompile(`(\.|\["|\[')content(["']\])? is not none`)

// saysThinking matches a template in the form of gpt-oss's, which reads reasoning as a message's thinking.
var saysThinking = regexp.MustCompile(`(?s)\.thinking.*<\|channel\|>|<\|channel\|>.*\.thinking`)

// forms returns the forms for a conversation in the order in which to try them: a template that has calls in another
// form than it expects fails. Most take a dict, which the filter tojson writes.
func (c *compiled) forms(messages []protocol.Message) []form {
	if c.names {
		return []form{{names: true}}
	}
	if !slices.ContainsFunc(messages, func(m protocol.Message) bool { return len(m.ToolCalls) > 0 }) {
		return []form{{thinks: c.thinks}}
	}
	if c.none {
		return []form{{nothing: true}, {text: true, nothing: true}, {}, {text: true}}
	}
	return []form{{thinks: c.thinks, folds: c.folds}, {text: true, thinks: c.thinks, folds: c.folds}}
}

// conversation returns the variable messages. Errors are [ErrTemplate].
func conversation(messages []protocol.Message, f form) ([]any, error) {
	switch {
	case f.folds:
		return folded(messages, f)
	case f.names:
		return named(messages), nil
	}
	list := make([]any, len(messages))
	for i, m := range messages {
		d, err := message(m, f)
		if err != nil {
			return nil, err
		}
		list[i] = d
	}
	return list, nil
}

// message returns the value of a message.
func message(m protocol.Message, f form) (jinja.Dict, error) {
	d := jinja.Dict{{Key: "role", Value: role(m)}, {Key: "content", Value: text(m.Content, m.Special)}}
	if m.Content == "" && len(m.ToolCalls) > 0 && f.nothing {
		d[1].Value = nil
	}
	if m.Reasoning != "" {
		d = append(d, jinja.Pair{Key: "reasoning_content", Value: m.Reasoning})
		if f.thinks && (m.Content == "" || len(m.ToolCalls) == 0) { // gpt-oss refuses both beside a call
			d = append(d, jinja.Pair{Key: "thinking", Value: m.Reasoning})
		}
	}
	if m.Name != "" {
		d = append(d, jinja.Pair{Key: "name", Value: m.Name})
	}
	if m.ToolCallID != "" {
		d = append(d, jinja.Pair{Key: "tool_call_id", Value: m.ToolCallID})
	}
	if len(m.ToolCalls) > 0 {
		calls, err := toolCalls(m.ToolCalls, f)
		if err != nil {
			return nil, err
		}
		d = append(d, jinja.Pair{Key: "tool_calls", Value: calls})
	}
	return d, nil
}

// toolCalls returns the value of a message's tool_calls.
func toolCalls(calls []protocol.ToolCall, f form) ([]any, error) {
	list := make([]any, len(calls))
	for i, c := range calls {
		arguments, err := any(c.Arguments), error(nil)
		if !f.text {
			if arguments, err = parse(c.Arguments); err != nil {
				return nil, fmt.Errorf("%w: the arguments of a call: %w", ErrTemplate, err)
			}
		}
		list[i] = jinja.Dict{
			{Key: "id", Value: c.ID}, {Key: "type", Value: marked.Trusted("function")},
			{Key: "function", Value: jinja.Dict{{Key: "name", Value: c.Name}, {Key: "arguments", Value: arguments}}},
		}
	}
	return list, nil
}

// text returns a message's text with its mark.
func text(s string, special bool) marked.Text {
	if special {
		return marked.Trusted(s)
	}
	return marked.Data(s)
}

// knownRoles are words that cannot spell a control token unless the template means it: some
// templates put the role into one, as in '<|' + message.role + '|>'.
var knownRoles = []string{"system", "developer", "user", "assistant", "tool"}

func role(m protocol.Message) marked.Text {
	return text(m.Role, m.Special || slices.Contains(knownRoles, m.Role))
}

// parse returns the value of a JSON text with the order of its keys. Its texts are data.
func parse(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return next(d)
}

// next returns the next value of d. Its depth is bounded where the request is checked.
func next(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			item, err := next(d)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		dict := jinja.Dict{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := next(d)
			if err != nil {
				return nil, err
			}
			dict = append(dict, jinja.Pair{Key: key.(string), Value: value})
		}
		_, err = d.Token()
		return dict, err
	}
	if n, is := token.(json.Number); is {
		return number(n.String())
	}
	return token, nil
}

// number returns a number as Python's json reads it, except for integers of more than 64 bits, which become floats.
func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && f == 0 {
		return nil, err
	}
	return f, nil // an infinity, if the number is too large
}
