package jinja

import (
	"time"

	"reel.internal/reel/generator/internal/marked"
)

// maxCalls is the depth of calls of macros and recursive loops in each other.
const maxCalls = 1000

// signal says how a statement ended.
type signal uint8

const (
	signalNone signal = iota
	signalBreak
	signalContinue
)

// missing is the value of a variable without one.
type missingType struct{}

var missing = missingType{}

func isMissing(v value) bool {
	_, is := v.(missingType)
	return is
}

// environment holds the variables of one call of a function.
type environment struct {
	slots []value
	up    *environment // of the function around it
}

func newEnvironment(size int, up *environment) *environment {
	e := &environment{make([]value, size), up}
	for i := range e.slots {
		e.slots[i] = missing
	}
	return e
}

// run is one rendering of a template.
type run struct {
	variables map[string]value // of the caller
	env       *environment
	out       *builder
	line      int // of the node that runs
	calls     int
	now       time.Time
}

// Context is what a template sees, and bounds its text.
type Context struct {
	// Variables have values of types nil, bool, int, int64, uint64, float64, string and
	// marked.Text, and []any, map[string]any (ordered by key) and Dict of them. A string is data.
	Variables map[string]any
	Now       time.Time // for strftime_now
	MaxBytes  int       // of the text
}

// Render returns the template's text. Errors are *[Error].
func (t *Template) Render(c Context) (text marked.Text, err error) {
	r := &run{
		variables: make(map[string]value, len(c.Variables)), env: newEnvironment(t.size, nil),
		out: &builder{most: max(c.MaxBytes, 1)}, now: c.Now,
	}
	defer catch(&err, &r.line)
	for name, v := range c.Variables {
		r.variables[name] = convert(v)
	}
	if t.selfAt >= 0 {
		r.env.slots[t.selfAt] = &templateReference{}
	}
	r.begin(t.frame)
	r.execAll(t.body)
	return r.out.str().marked(), nil
}

func (r *run) at(p place) *value {
	e := r.env
	for range p.hops {
		e = e.up
	}
	return &e.slots[p.index]
}

// begin gives the variables of a frame their first values.
func (r *run) begin(frame []entry) {
	for _, l := range frame {
		switch l.origin {
		case fromContext:
			*r.at(l.at) = r.variable(l.name)
		case fromOuter:
			*r.at(l.at) = *r.at(l.outer)
		default:
			*r.at(l.at) = missing
		}
	}
}

// variable returns the value of a template's variable, or missing.
func (r *run) variable(name string) value {
	if v, ok := r.variables[name]; ok {
		return v
	}
	if v, ok := globals[name]; ok {
		return v
	}
	return missing
}

func (r *run) execAll(body []stmt) signal {
	for _, s := range body {
		if signal := s.exec(r); signal != signalNone {
			return signal
		}
	}
	return signalNone
}

// capture returns the text that f prints, and f's signal.
func (r *run) capture(f func() signal) (str, signal) {
	out := r.out
	r.out = &builder{}
	s := f()
	text := r.out.str()
	r.out = out
	return text, s
}

// within runs f with the variables of a call.
func (r *run) within(env *environment, f func()) {
	outer, line := r.env, r.line
	r.env = env
	f()
	r.env, r.line = outer, line
}

// call runs f as a call of a macro or of a recursive loop, in the function's variables.
func (r *run) call(env *environment, f func()) str {
	if r.calls++; r.calls > maxCalls {
		fail("more than %d calls in each other", maxCalls)
	}
	var text str
	r.within(env, func() {
		text, _ = r.capture(func() signal { f(); return signalNone })
	})
	r.calls--
	return text
}

// assign assigns a value to a target.
func (r *run) assign(t target, v value) {
	if !t.tuple {
		if t.attr != "" {
			r.setAttribute(t, v)
		} else {
			*r.at(t.at) = v
		}
		return
	}
	items := take(r, v, len(t.parts)+1)
	if len(items) != len(t.parts) {
		fail("%d values expected to unpack", len(t.parts))
	}
	for i, part := range t.parts {
		r.assign(part, items[i])
	}
}

// checkNamespaces checks that the attributes in a target belong to namespaces.
func (r *run) checkNamespaces(t target) {
	if t.attr != "" {
		if _, ok := (*r.at(t.at)).(*namespace); !ok {
			fail("cannot assign an attribute of something that is no namespace")
		}
	}
	for _, part := range t.parts {
		r.checkNamespaces(part)
	}
}

func (r *run) setAttribute(t target, v value) {
	(*r.at(t.at)).(*namespace).dict.set(literal(t.attr), v)
}
