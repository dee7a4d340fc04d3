package chat

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// compiled is a compiled template. Rendering it has no bound on time and memory, so only the
// worker process does that.
type compiled struct {
	template *jinja.Template
	tokens   map[string]string
}

// compile compiles a template. Errors are [ErrTemplate].
func compile(s Source) (*compiled, error) {
	t, err := jinja.Compile(s.Template)
	if err != nil {
		return nil, fmt.Errorf("%w: %.300s", ErrTemplate, err.Error())
	}
	return &compiled{t, s.Tokens}, nil
}

// render returns the text of a request, with the start of an answer if answer is true. now is
// the time that the template sees. Errors: [ErrRefused] if the template called raise_exception,
// [ErrTooLong], [ErrTemplate].
func (c *compiled) render(r Request, answer bool, now time.Time) (marked.Text, error) {
	variables := map[string]any{"add_generation_prompt": answer, "tools": nil, "documents": nil}
	for name, v := range r.Variables {
		variables[name] = v
	}
	for name, token := range c.tokens {
		variables[name] = marked.Trusted(token)
	}
	variables["messages"] = conversation(r.Messages)
	text, err := c.template.Render(jinja.Context{Variables: variables, Now: now, MaxBytes: r.MaxBytes})
	switch {
	case errors.Is(err, jinja.ErrTooLong):
		return nil, ErrTooLong
	case errors.Is(err, jinja.ErrRaised):
		return nil, fmt.Errorf("%w: %.1000s", ErrRefused, err.Error())
	case err != nil:
		return nil, fmt.Errorf("%w: %.300s", ErrTemplate, err.Error())
	}
	return text, nil
}

// conversation returns the variable messages.
func conversation(messages []protocol.Message) []any {
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = jinja.Dict{{Key: "role", Value: role(m)}, {Key: "content", Value: text(m.Content, m.Special)}}
	}
	return list
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
