package chat

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/jinja"
	"reel.internal/reel/generator/internal/marked"
)

// compiled is a compiled template. Rendering it has no bound on time and memory, so only the
// worker process does that.
type compiled struct {
	template *jinja.Template
	tools    *jinja.Template // for requests with tools; nil: template
	tokens   map[string]string
	none     bool // a message that only calls tools has content none
	thinks   bool // reasoning is thinking too
	folds    bool // results are tool_responses
	names    bool // calls are messages with metadata
	holds    bool // tools are a text in the system message
}

// compile compiles a template. Errors are [ErrTemplate].
func compile(s Source) (*compiled, error) {
	c := &compiled{tokens: s.Tokens, none: saysNone.MatchString(s.Template + s.Tools),
		thinks: saysThinking.MatchString(s.Template + s.Tools), folds: saysResponses(s.Template + s.Tools),
		names: calls.Observes(s.Template + s.Tools), holds: saysHeld(s.Template + s.Tools)}
	var err error
	if c.template, err = jinja.Compile(s.Template); err == nil && s.Tools != "" {
		c.tools, err = jinja.Compile(s.Tools)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.300s", ErrTemplate, err.Error())
	}
	return c, nil
}

// render returns the text of a request, with the start of an answer. now is the time that the
// template sees. Errors: [ErrRefused] if the template called raise_exception,
// [ErrTooLong], [ErrTemplate].
func (c *compiled) render(r Request, now time.Time) (marked.Text, error) {
	template := c.template
	if r.Tools != "" && c.tools != nil {
		template = c.tools
	}
	variables, err := c.variables(r)
	if err != nil {
		return nil, err
	}
	var failed error // the first one
	for _, f := range c.forms(r.Messages) {
		messages, err := conversation(r.Messages, f)
		if err == nil && c.holds {
			messages, err = holding(messages, r.Tools)
		}
		if err != nil {
			return nil, err
		}
		variables["messages"] = messages
		text, err := run(template, jinja.Context{Variables: variables, Now: now, MaxBytes: r.MaxBytes})
		if !errors.Is(err, ErrTemplate) {
			return text, err
		}
		failed = cmp.Or(failed, err)
	}
	return nil, failed
}

// variables returns the variables of a request but messages. Errors are [ErrTemplate].
func (c *compiled) variables(r Request) (map[string]any, error) {
	variables := map[string]any{"add_generation_prompt": true, "tools": nil, "documents": nil}
	for name, v := range r.Variables {
		variables[name] = v
	}
	for name, token := range c.tokens {
		variables[name] = marked.Trusted(token)
	}
	if r.Tools == "" {
		return variables, nil
	}
	tools, err := parse(r.Tools)
	if err != nil {
		return nil, fmt.Errorf("%w: tools: %w", ErrTemplate, err)
	}
	variables["tools"] = tools
	return variables, nil
}

// run renders a template.
func run(t *jinja.Template, c jinja.Context) (marked.Text, error) {
	text, err := t.Render(c)
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
