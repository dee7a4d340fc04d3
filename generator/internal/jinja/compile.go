package jinja

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	body  []stmt
	frame []entry
	size  int // number of the template's variables
	// selfAt is the variable self, or -1. It has the template's blocks, and there are none.
	selfAt int
}

// Compile compiles a template. An error is an *[Error] with its line.
func Compile(source string) (t *Template, err error) {
	line := 0
	defer catch(&err, &line)
	body := parse(source)
	f := &function{slots: map[slotKey]int{}}
	c := &compiler{symbols: newSymbols(nil, f), function: f}
	t = &Template{body: body, selfAt: -1}
	if undeclared(body, "self")["self"] {
		t.selfAt = c.symbols.parameter("self").index
	}
	visitAll(c.symbols, body)
	compileAll(c, body)
	t.frame, t.size = c.frame(), f.size
	return t, nil
}

// compiler finds the variables that names refer to, in one frame. It fills in the nodes' fields
// for running.
type compiler struct {
	symbols  *symbols
	function *function
	soft     bool // within an if, where an unknown filter is an error when it runs
	loop     bool // within a loop of the same function
}

// inner returns the compiler of a frame in this one.
func (c *compiler) inner() *compiler {
	return &compiler{symbols: newSymbols(c.symbols, c.function), function: c.function, loop: c.loop}
}

// innerFunction returns the compiler of a function in this one.
func (c *compiler) innerFunction() *compiler {
	f := &function{depth: c.function.depth + 1, slots: map[slotKey]int{}}
	return &compiler{symbols: newSymbols(c.symbols, f), function: f}
}

func (c *compiler) softly() *compiler {
	s := *c
	s.soft = true
	return &s
}

func (c *compiler) place(v variable) place {
	return place{c.function.depth - v.function.depth, v.index}
}

// find returns the place of a name.
func (c *compiler) find(name string, line int) place {
	v, ok := c.symbols.find(name)
	if !ok {
		failAt(line, "Jinja2 cannot use the variable %s here", name)
	}
	return c.place(v)
}

// frame returns how to begin this frame at run time.
func (c *compiler) frame() (loads []entry) {
	for _, v := range c.symbols.order {
		switch l := c.symbols.loads[v]; l.origin {
		case fromParameter:
		case fromOuter:
			loads = append(loads, entry{at: c.place(v), origin: l.origin, outer: c.place(l.outer)})
		default:
			loads = append(loads, entry{at: c.place(v), origin: l.origin, name: l.name})
		}
	}
	return loads
}

func compileAll[T node](c *compiler, nodes []T) {
	for _, n := range nodes {
		c.compile(n)
	}
}

func (c *compiler) compile(n node) {
	switch n := n.(type) {
	case *nameNode:
		n.at = c.find(n.name, n.line)
	case *nsNode:
		n.at = c.find(n.name, n.line)
	case *condNode:
		compileAll(c.softly(), n.children())
	case *filterNode:
		n.filter = c.builtin("filter", filters, n.name, n.line)
		compileAll(c, n.children())
	case *testNode:
		n.test = c.builtin("test", tests, n.name, n.line)
		compileAll(c, n.children())
	case *ifNode:
		compileAll(c.softly(), n.children())
	case *forNode:
		c.compileFor(n)
	case *macroNode:
		c.compileMacro(n)
		n.at = c.find(n.name, n.line)
	case *callBlockNode:
		if n.call != nil {
			c.compile(n.call)
		}
		c.compileMacro(n.body)
	case *filterBlockNode:
		c.compileFilterBlock(n)
	case *withNode:
		c.compileWith(n)
	case *setNode:
		c.compile(n.value)
		n.assign = c.target(n.target)
	case *setBlockNode:
		c.compileSetBlock(n)
	case *jumpNode:
		if !c.loop {
			failAt(n.line, "break or continue outside of a loop")
		}
	default:
		compileAll(c, n.children())
	}
}

// builtin returns a filter or a test. An unknown one is an error, unless it may never run.
func (c *compiler) builtin(what string, from map[string]*builtin, name string, line int) *builtin {
	b, ok := from[name]
	if !ok && !c.soft {
		failAt(line, "no %s named %.100s", what, name)
	}
	return b
}

func (c *compiler) compileFilterBlock(n *filterBlockNode) {
	inner := c.inner()
	visitAll(inner.symbols, n.children())
	compileAll(inner, n.body)
	inner.compile(n.filter)
	n.frame = inner.frame()
}

func (c *compiler) compileWith(n *withNode) {
	inner := c.inner()
	visitAll(inner.symbols, n.targets)
	visitAll(inner.symbols, n.body)
	for _, target := range n.targets {
		n.assign = append(n.assign, inner.target(target))
	}
	compileAll(c, n.values)
	compileAll(inner, n.body)
	n.frame = inner.frame()
}

func (c *compiler) compileSetBlock(n *setBlockNode) {
	inner := c.inner()
	visitAll(inner.symbols, n.body)
	compileAll(inner, n.body)
	n.assign = c.target(n.target)
	if n.filter != nil {
		inner.compile(n.filter)
	}
	n.frame = inner.frame()
}

func (c *compiler) compileFor(n *forNode) {
	checkLoopName(n)
	n.extended = n.recursive || undeclared(n.body, "loop")["loop"]
	body, otherwise := c.inner(), c.inner()
	if n.recursive {
		body = c.innerFunction()
		n.function = body.function
		otherwise = &compiler{symbols: newSymbols(c.symbols, body.function), function: body.function}
	}
	body.loop = true
	if n.extended {
		n.loopAt = body.place(body.symbols.parameter("loop"))
	}
	body.symbols.visitTarget(n.target)
	visitAll(body.symbols, n.body)
	visitAll(otherwise.symbols, n.otherwise)
	if n.test != nil {
		c.compileLoopTest(n)
	}
	c.compile(n.iter)
	n.assign = body.target(n.target)
	compileAll(body, n.body)
	compileAll(otherwise, n.otherwise)
	n.frame, n.elseFrame = body.frame(), otherwise.frame()
}
