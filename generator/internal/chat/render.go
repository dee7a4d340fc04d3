package chat

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"reel.internal/reel/protocol"
)

// compiled is a parsed template. Rendering it has no bound on time and memory, so only the
// worker process does that.
type compiled struct {
	template *exec.Template
	tokens   map[string]string
}

// compile parses a template. Errors are [ErrTemplate], also if gonja panics.
func compile(s Source) (c *compiled, err error) {
	defer recoverTo(&err)
	source, err := rewrite(s.Template)
	if err != nil {
		return nil, err
	}
	loader, err := loaders.NewMemoryLoader(map[string]string{"/chat_template": source})
	if err != nil {
		return nil, err
	}
	settings := config.New()
	settings.KeepTrailingNewline = true // rewrite drops it
	t, err := exec.NewTemplate("/chat_template", settings, loader, environment())
	if err != nil {
		// gonja puts the whole source in front of the cause.
		cause := strings.TrimPrefix(err.Error(), fmt.Sprintf("failed to parse template '%s': ", source))
		return nil, fmt.Errorf("%w: %.300s", ErrTemplate, cause)
	}
	return &compiled{t, s.Tokens}, nil
}

// recoverTo sets err after a panic in gonja.
func recoverTo(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %.300v", ErrTemplate, r)
	}
}

// render writes the text of messages to w, with the start of an answer if answer is true.
// now is the time that the template sees. Errors: [ErrRefused] if the template called
// raise_exception, [ErrTemplate], and those of w.
func (c *compiled) render(
	w io.Writer, messages []protocol.Message, variables map[string]any, answer bool, now time.Time,
) (err error) {
	var raised error
	defer func() {
		if raised != nil {
			err = raised
		}
	}()
	defer recoverTo(&err)
	context := map[string]any{"add_generation_prompt": answer, "tools": none, "documents": none, noneName: none}
	for name, v := range variables {
		context[name] = v
	}
	for name, token := range c.tokens {
		context[name] = token
	}
	l := list{}
	for _, m := range messages {
		l = append(l, orderedDict("role", m.Role, "content", m.Content))
	}
	context["messages"] = l
	context["strftime_now"] = func(format string) string {
		return strftime.Format(withoutZone.Replace(format), now)
	}
	context["raise_exception"] = func(message *exec.Value) *exec.Value {
		raised = fmt.Errorf("%w: %.1000s", ErrRefused, message.String())
		return exec.AsValue(raised)
	}
	output := &errorKeeper{w: w}
	err = c.template.Execute(output, exec.NewContext(context))
	switch {
	case output.err != nil: // gonja does not wrap it for errors.Is
		return output.err
	case err != nil:
		return fmt.Errorf("%w: %.300s", ErrTemplate, err.Error())
	}
	return nil
}

// withoutZone removes the time zone from a format: the time in transformers has none.
var withoutZone = strings.NewReplacer("%%", "%%", "%z", "", "%Z", "")

// errorKeeper is a writer that keeps the last error of w.
type errorKeeper struct {
	w   io.Writer
	err error
}

func (f *errorKeeper) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}
