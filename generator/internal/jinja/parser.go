package jinja

import (
	"slices"
	"strings"
)

// parse returns the statements of a template.
func parse(source string) []stmt {
	p := &parser{tokens: tokenize(source)}
	return p.statements()
}

// statements parses statements until a tag with one of the names ends them; the parser is then
// at that name. Without names the template's end ends them.
func (p *parser) statements(ends ...string) (body []stmt) {
	defer p.enter()()
	out := &outputNode{}
	flush := func() {
		if len(out.parts) > 0 {
			body, out = append(body, out), &outputNode{}
		}
	}
	for {
		switch t := p.next(); t.kind {
		case tokenEnd:
			if len(ends) > 0 {
				failAt(t.line, "unexpected end of template, expected %s", strings.Join(ends, " or "))
			}
			flush()
			return body
		case tokenText:
			out.parts, out.lines = append(out.parts, &constNode{literal(t.text)}), append(out.lines, t.line)
		case tokenPrintBegin:
			out.lines = append(out.lines, p.line())
			out.parts = append(out.parts, p.tuple(tupleOptions{}))
			p.expectKind(tokenPrintEnd)
		case tokenBlockBegin:
			flush()
			if name := p.current(); name.kind == tokenName && slices.Contains(ends, name.text) {
				return body
			}
			body = append(body, p.statement(ends))
			p.expectKind(tokenBlockEnd)
		}
	}
}

// block parses the statements of a block, from the end of its first tag on, and the name that
// ends it. It returns that name, too.
func (p *parser) block(ends ...string) ([]stmt, string) {
	p.skip(":")
	p.expectKind(tokenBlockEnd)
	body := p.statements(ends...)
	return body, p.next().text
}

// statement parses a statement's tag and block. ends are the tags that would end the block
// around it, for errors.
func (p *parser) statement(ends []string) stmt {
	if p.current().kind != tokenName {
		failAt(p.line(), "tag name expected")
	}
	t := p.next()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifBlock()
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.callBlock(t.line)
	case "generation":
		body, _ := p.block("endgeneration")
		return &callBlockNode{body: &macroNode{name: "", body: body, line: t.line}, line: t.line}
	case "filter":
		return p.filterBlock(t.line)
	case "with":
		return p.with(t.line)
	case "print":
		return p.print(t.line)
	case "break":
		return &jumpNode{signalBreak, t.line}
	case "continue":
		return &jumpNode{signalContinue, t.line}
	case "include", "import", "from", "extends", "block", "autoescape":
		failAt(t.line, "the tag %s is not supported in chat templates", t.text)
	}
	waiting := ""
	if len(ends) > 0 {
		waiting = "; the open block ends with " + strings.Join(ends, " or ")
	}
	failAt(t.line, "unknown tag %.100s%s", t.text, waiting)
	return nil
}

func (p *parser) forLoop(line int) stmt {
	f := &forNode{line: line, target: p.assignTarget(tupleOptions{end: "in"})}
	p.expect("in")
	f.iter = p.tuple(tupleOptions{noCondition: true, end: "recursive"})
	if p.skip("if") {
		f.test = p.expression()
	}
	f.recursive = p.skip("recursive")
	var end string
	if f.body, end = p.block("endfor", "else"); end == "else" {
		f.otherwise, _ = p.block("endfor")
	}
	return f
}

func (p *parser) ifBlock() stmt {
	n := &ifNode{}
	for {
		n.lines = append(n.lines, p.line())
		n.tests = append(n.tests, p.tuple(tupleOptions{noCondition: true}))
		body, end := p.block("elif", "else", "endif")
		n.bodies = append(n.bodies, body)
		if end == "elif" {
			continue
		}
		if end == "else" {
			n.otherwise, _ = p.block("endif")
		}
		return n
	}
}

func (p *parser) set(line int) stmt {
	target := p.assignTarget(tupleOptions{namespaces: true})
	if p.skip("=") {
		return &setNode{target: target, value: p.tuple(tupleOptions{}), line: line}
	}
	s := &setBlockNode{target: target, filter: p.blockFilters(), line: line}
	s.body, _ = p.block("endset")
	return s
}

// assignTarget parses what is assigned to: a name, a namespace's attribute, or several.
func (p *parser) assignTarget(o tupleOptions) expr {
	o.targets = true
	line := p.line()
	e := p.tuple(o)
	markStored(e, line)
	return e
}

// markStored says that the names of a target are stored, or fails if it cannot be assigned.
func markStored(e expr, line int) {
	switch n := e.(type) {
	case *nameNode:
		n.use = store
	case *nsNode:
	case *tupleNode:
		for _, item := range n.items {
			markStored(item, line)
		}
	default:
		failAt(line, "a literal cannot be assigned")
	}
}

// parameter parses a name that is a parameter.
func (p *parser) parameter() *nameNode {
	t := p.expectKind(tokenName)
	switch t.text {
	case "true", "false", "none", "True", "False", "None":
		failAt(t.line, "%s cannot be assigned", t.text)
	}
	return &nameNode{name: t.text, use: param, line: t.line}
}

// signature parses the parameters of a macro.
func (p *parser) signature(m *macroNode) {
	p.expect("(")
	for !p.current().is(")") {
		if len(m.params) > 0 {
			p.expect(",")
		}
		name := p.parameter()
		if slices.ContainsFunc(m.params, func(n *nameNode) bool { return n.name == name.name }) {
			failAt(name.line, "two parameters are called %s", name.name)
		}
		if p.skip("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			failAt(name.line, "a parameter without a default value follows one with it")
		}
		m.params = append(m.params, name)
	}
	p.expect(")")
}

func (p *parser) macro(line int) stmt {
	m := &macroNode{line: line, name: p.parameter().name}
	p.signature(m)
	m.body, _ = p.block("endmacro")
	return m
}

func (p *parser) callBlock(line int) stmt {
	b := &callBlockNode{body: &macroNode{line: line}, line: line}
	if p.current().is("(") {
		p.signature(b.body)
	}
	call, ok := p.expression().(*callNode)
	if !ok || slices.Contains(call.names, "caller") {
		failAt(line, "expected a call")
	}
	b.call = call
	b.body.body, _ = p.block("endcall")
	return b
}

func (p *parser) filterBlock(line int) stmt {
	b := &filterBlockNode{line: line, filter: p.filter(nil)}
	for n := 0; p.skip("|"); n++ {
		p.link(n)
		b.filter = p.filter(b.filter)
	}
	b.body, _ = p.block("endfilter")
	return b
}

func (p *parser) with(line int) stmt {
	w := &withNode{line: line}
	for p.current().kind != tokenBlockEnd {
		if len(w.targets) > 0 {
			p.expect(",")
		}
		target := p.assignTarget(tupleOptions{})
		asParameters(target)
		p.expect("=")
		w.targets, w.values = append(w.targets, target), append(w.values, p.expression())
	}
	w.body, _ = p.block("endwith")
	return w
}

// asParameters turns the names of a target into parameters.
func asParameters(e expr) {
	switch n := e.(type) {
	case *nameNode:
		n.use = param
	case *tupleNode:
		for _, item := range n.items {
			asParameters(item)
		}
	}
}

func (p *parser) print(line int) stmt {
	out := &outputNode{}
	for p.current().kind != tokenBlockEnd {
		if len(out.parts) > 0 {
			p.expect(",")
		}
		out.parts, out.lines = append(out.parts, p.expression()), append(out.lines, line)
	}
	return out
}
