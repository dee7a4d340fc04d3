package chat

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"

	"reel/protocol"
)

// compiled is a template that can be rendered, without any bound on its time
// and memory: only the worker's process does that.
type compiled struct {
	template *exec.Template
	tokens   map[string]string
}

// compile parses a template. gonja may panic on one that is malformed.
func compile(s Source) (c *compiled, err error) {
	defer recovered(&err)
	source, err := rewrite(s.Template)
	if err != nil {
		return nil, err
	}
	loader, err := loaders.NewMemoryLoader(map[string]string{"/chat_template": source})
	if err != nil {
		return nil, err
	}
	settings := config.New()
	settings.KeepTrailingNewline = true // rewrite has dropped it
	t, err := exec.NewTemplate("/chat_template", settings, loader, environment())
	if err != nil {
		// gonja puts the whole source in front of the cause.
		cause := strings.TrimPrefix(err.Error(), fmt.Sprintf("failed to parse template '%s': ", source))
		return nil, fmt.Errorf("%w: %.300s", ErrTemplate, cause)
	}
	return &compiled{t, s.Tokens}, nil
}

// recovered turns a panic of gonja's into err.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %.300v", ErrTemplate, r)
	}
}

// render writes the text of messages to w, with the beginning of an answer.
// Errors: ErrRefused, where the template called raise_exception, ErrTemplate.
func (c *compiled) render(w io.Writer, messages []protocol.Message, answer bool, now time.Time) (err error) {
	var raised error
	defer func() {
		if raised != nil {
			err = raised
		}
	}()
	defer recovered(&err)
	context := map[string]any{"add_generation_prompt": answer, "tools": none, "documents": none, noneName: none}
	for name, token := range c.tokens {
		context[name] = token
	}
	l := list{}
	for _, m := range messages {
		l = append(l, orderedDict("role", m.Role, "content", m.Content))
	}
	context["messages"] = l
	context["strftime_now"] = func(format string) string { return strftime.Format(withoutZone.Replace(format), now) }
	context["raise_exception"] = func(message *exec.Value) *exec.Value {
		raised = fmt.Errorf("%w: %.1000s", ErrRefused, message.String())
		return exec.AsValue(raised)
	}
	output := &failing{w: w}
	err = c.template.Execute(output, exec.NewContext(context))
	switch {
	case output.err != nil: // gonja wraps it beyond recognition
		return output.err
	case err != nil:
		return fmt.Errorf("%w: %.300s", ErrTemplate, err.Error())
	}
	return nil
}

// withoutZone takes the zone out of a format: Python's time has none here.
var withoutZone = strings.NewReplacer("%%", "%%", "%z", "", "%Z", "")

// failing keeps the error of a write.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

// environment is what templates can use: Jinja2's own and what transformers
// adds, without what draws random numbers or reads files.
func environment() *exec.Environment {
	context := exec.EmptyContext()
	for _, name := range []string{"cycler", "dict", "joiner", "namespace"} {
		function, _ := builtins.GlobalFunctions.Get(name)
		context.Set(name, function)
	}
	context.Set("range", pythonRange)
	context.Set(groupName, func(v *exec.Value) *exec.Value { return v })
	context.Set(ifName, func(condition, then, otherwise *exec.Value) *exec.Value {
		if condition.IsTrue() {
			return then
		}
		return otherwise
	})
	return &exec.Environment{Context: context, Filters: filters(), Tests: tests(), ControlStructures: statements(), Methods: methods()}
}

// maxRange is the numbers of a range at most, as in Jinja2's sandbox.
const maxRange = 100_000

// pythonRange is range: a list, where gonja's leaves a goroutine behind.
func pythonRange(arguments *exec.VarArgs) *exec.Value {
	start, stop, step := 0, 0, 1
	switch n := arguments.Args; len(n) {
	case 1:
		stop = n[0].Integer()
	case 2:
		start, stop = n[0].Integer(), n[1].Integer()
	case 3:
		start, stop, step = n[0].Integer(), n[1].Integer(), n[2].Integer()
	}
	l := list{}
	for i := start; step != 0 && (step > 0 && i < stop || step < 0 && i > stop); i += step {
		if l = append(l, i); len(l) > maxRange {
			return exec.AsValue(fmt.Errorf("a range of more than %d numbers", maxRange))
		}
	}
	return exec.AsValue(l)
}

func filters() *exec.FilterSet {
	set := map[string]exec.FilterFunction{}
	for _, name := range []string{"abs", "attr", "batch", "capitalize", "center", "e", "escape", "first", "float", "forceescape", "format", "groupby",
		"indent", "int", "join", "last", "length", "count", "list", "lower", "map", "max", "min", "rejectattr", "reject", "replace", "round", "safe",
		"selectattr", "select", "slice", "sort", "string", "striptags", "sum", "title", "truncate", "unique", "upper", "urlencode", "wordcount", "wordwrap"} {
		if filter, ok := builtins.Filters.Get(name); ok {
			set[name] = func(e *exec.Evaluator, in *exec.Value, arguments *exec.VarArgs) *exec.Value {
				return listed(filter(e, in, arguments))
			}
		}
	}
	set["tojson"] = toJSON
	set["default"], set["d"] = defaultFilter, defaultFilter
	set["dictsort"] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		return exec.AsValue(sorted(items(in)))
	}
	set["reverse"] = reverseFilter
	set["items"] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value { return exec.AsValue(items(in)) }
	set["trim"] = func(_ *exec.Evaluator, in *exec.Value, arguments *exec.VarArgs) *exec.Value {
		return exec.AsValue(strip(in.String(), argument(arguments, 0, "chars"), true, true))
	}
	return exec.NewFilterSet(set)
}

// reverseFilter reverses a list, or the characters of a string.
func reverseFilter(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsString() {
		characters := []rune(in.String())
		slices.Reverse(characters)
		return exec.AsValue(string(characters))
	}
	l, _ := listed(in).Interface().(list)
	l = slices.Clone(l)
	slices.Reverse(l)
	return exec.AsValue(l)
}

// defaultFilter replaces what is undefined; with boolean=true, what is false too.
func defaultFilter(_ *exec.Evaluator, in *exec.Value, arguments *exec.VarArgs) *exec.Value {
	boolean := argument(arguments, 1, "boolean")
	if !in.IsNil() && (boolean == nil || !boolean.IsTrue() || in.IsTrue()) {
		return in
	}
	if v := argument(arguments, 0, "default_value"); v != nil {
		return v
	}
	return exec.AsValue("")
}

func tests() *exec.TestSet {
	set := map[string]exec.TestFunction{}
	for _, name := range []string{"boolean", "callable", "defined", "divisibleby", "eq", "equalto", "==", "even", "float", "ge", ">=", "gt", "greaterthan", ">", "in", "integer",
		"iterable", "le", "<=", "lower", "lt", "lessthan", "<", "mapping", "ne", "!=", "number", "odd", "sameas", "string", "undefined", "upper"} {
		if test, ok := builtins.Tests.Get(name); ok {
			set[name] = test
		}
	}
	is := func(test func(*exec.Value) bool) exec.TestFunction {
		return func(_ *exec.Context, in *exec.Value, _ *exec.VarArgs) (bool, error) { return test(in), nil }
	}
	set["none"] = is(isNone)
	set["true"] = is(func(v *exec.Value) bool { return v.IsBool() && v.Bool() })
	set["false"] = is(func(v *exec.Value) bool { return v.IsBool() && !v.Bool() })
	set["sequence"] = is((*exec.Value).IsIterable)
	return exec.NewTestSet(set)
}

func statements() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{"generation": parseGeneration}
	for _, name := range []string{"filter", "for", "if", "macro", "set", "with", "break", "continue", "call"} {
		if statement, ok := builtins.ControlStructures.Get(name); ok {
			set[name] = statement
		}
	}
	return exec.NewControlStructureSet(set)
}

// generation marks what the model wrote, for training; it prints its body.
type generation struct {
	location *tokens.Token
	body     *nodes.Wrapper
}

func (g *generation) Position() *tokens.Token { return g.location }
func (g *generation) String() string          { return "generation" }

func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteWrapper(g.body)
}

func parseGeneration(p, _ *parser.Parser) (nodes.ControlStructure, error) {
	location := p.Current()
	body, _, err := p.WrapUntil("endgeneration")
	return &generation{location, body}, err
}
