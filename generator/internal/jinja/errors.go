package jinja

import (
	"errors"
	"fmt"
)

// Kinds of errors, which an [Error] wraps. Other errors are those of the template itself.
var (
	// ErrRaised: the template called raise_exception.
	ErrRaised = errors.New("raise_exception")
	// ErrTooLong: the rendered text exceeds its bound.
	ErrTooLong = errors.New("the text is too long")
)

// Error is the reason why a template cannot be compiled or rendered.
type Error struct {
	Line int // of the template, from 1; 0 if unknown
	Text string
	Kind error // ErrRaised, ErrTooLong or nil
}

func (e *Error) Error() string {
	if e.Line == 0 || errors.Is(e.Kind, ErrRaised) {
		return e.Text
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Text)
}

func (e *Error) Unwrap() error { return e.Kind }

// fail ends compiling or rendering: the package panics with an *Error, which [Compile] and
// [Template.Render] return. The renderer fills in the line.
func fail(format string, arguments ...any) {
	panic(&Error{Text: fmt.Sprintf(format, arguments...)})
}

// failAt is fail with a line.
func failAt(line int, format string, arguments ...any) {
	panic(&Error{Line: line, Text: fmt.Sprintf(format, arguments...)})
}

// catch sets err after a panic with an *Error. Other panics go on. line fills in a missing line.
func catch(err *error, line *int) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		if e.Line == 0 {
			e.Line = *line
		}
		*err = e
	default:
		panic(e)
	}
}
