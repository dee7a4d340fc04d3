package chat

import (
	"fmt"
	"slices"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// environment returns the names that templates can use: those of Jinja2 and transformers,
// except for random numbers and files.
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
	return &exec.Environment{
		Context: context, Filters: filters(), Tests: tests(), ControlStructures: statements(), Methods: methods(),
	}
}

// maxRange is the largest length of a range, as in Jinja2's sandbox.
const maxRange = 100_000

// pythonRange is Python's range. It returns a list; gonja's range leaks a goroutine.
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

// builtinFilters are the filters that gonja has as Jinja2 has them, but for their lists.
var builtinFilters = []string{
	"abs", "attr", "batch", "capitalize", "center", "e", "escape", "first", "float", "forceescape", "format",
	"groupby", "indent", "int", "join", "last", "length", "count", "list", "lower", "map", "max", "min",
	"rejectattr", "reject", "replace", "round", "safe", "selectattr", "select", "slice", "sort", "string",
	"striptags", "sum", "title", "truncate", "unique", "upper", "urlencode", "wordcount", "wordwrap",
}

func filters() *exec.FilterSet {
	set := map[string]exec.FilterFunction{}
	for _, name := range builtinFilters {
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
	set["items"] = func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		return exec.AsValue(items(in))
	}
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

// defaultFilter replaces an undefined value; with boolean=true, a false one, too.
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

// builtinTests are the tests that gonja has as Jinja2 has them.
var builtinTests = []string{
	"boolean", "callable", "defined", "divisibleby", "eq", "equalto", "==", "even", "float", "ge", ">=", "gt",
	"greaterthan", ">", "in", "integer", "iterable", "le", "<=", "lower", "lt", "lessthan", "<", "mapping", "ne",
	"!=", "number", "odd", "sameas", "string", "undefined", "upper",
}

func tests() *exec.TestSet {
	set := map[string]exec.TestFunction{}
	for _, name := range builtinTests {
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

// generation is the block of that name, which marks the model's text for training. It prints
// its body.
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
