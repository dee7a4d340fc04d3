package jinja

import "slices"

// target is what a value is assigned to: a *nameNode's place, an attribute of a namespace, or
// several of them.
type target struct {
	at    place
	attr  string // of the namespace at that place, or ""
	line  int
	parts []target // of a tuple
	tuple bool
}

// target compiles what is assigned to.
func (c *compiler) target(e expr) target {
	switch n := e.(type) {
	case *nameNode:
		return target{at: c.find(n.name, n.line), line: n.line}
	case *nsNode:
		return target{at: c.find(n.name, n.line), attr: n.attr, line: n.line}
	}
	t := target{tuple: true}
	for _, item := range e.(*tupleNode).items {
		t.parts = append(t.parts, c.target(item))
	}
	return t
}

// checkLoopName refuses assignments to the variable loop within a loop.
func checkLoopName(n node) {
	if name, ok := n.(*nameNode); ok && name.name == "loop" && name.use == store {
		failAt(name.line, "the variable loop cannot be assigned in a loop")
	}
	for _, child := range n.children() {
		checkLoopName(child)
	}
}

// compileLoopTest compiles a loop's test, which is a function of its own.
func (c *compiler) compileLoopTest(n *forNode) {
	test := c.innerFunction()
	n.testFunction = test.function
	test.symbols.visitTarget(n.target)
	test.symbols.visit(n.test)
	test.compile(n.test)
	n.testMatch, n.testFrame = test.target(n.target), test.frame()
}

// macroCode is what the compiler adds to a macro.
type macroCode struct {
	function *function
	frame    []entry
	paramsAt []int
	// The variables caller, kwargs and varargs, or -1. A parameter may be called caller, too.
	callerAt, kwargsAt, varargsAt int
	usesCaller                    bool
}

func (c *compiler) compileMacro(n *macroNode) {
	inner := c.innerFunction()
	visitAll(inner.symbols, n.children())
	special := undeclared(n.body, "caller", "kwargs", "varargs")
	n.function, n.usesCaller = inner.function, special["caller"]
	n.callerAt = inner.special(n, "caller", special)
	n.kwargsAt = inner.special(n, "kwargs", special)
	n.varargsAt = inner.special(n, "varargs", special)
	for i, p := range n.params {
		if p.name == "caller" && n.usesCaller && i < len(n.params)-len(n.defaults) {
			failAt(n.line, "the parameter caller needs a default value")
		}
		v, _ := inner.symbols.find(p.name)
		n.paramsAt = append(n.paramsAt, v.index)
	}
	compileAll(inner, n.defaults)
	compileAll(inner, n.body)
	n.frame = inner.frame()
}

// special returns the index of a variable that a macro has if its body uses it and no parameter
// has its name, or -1.
func (c *compiler) special(n *macroNode, name string, used map[string]bool) int {
	if !used[name] || slices.ContainsFunc(n.params, func(p *nameNode) bool { return p.name == name }) {
		return -1
	}
	return c.symbols.parameter(name).index
}
