package jinja

import "slices"

// postfix parses attributes, items and calls after an expression.
func (p *parser) postfix(e expr) expr {
	for n := 0; ; n++ {
		t := p.current()
		switch {
		case t.is("."):
			e = p.attribute(e)
		case t.is("["):
			e = p.subscript(e)
		case t.is("("):
			e = p.call(e)
		default:
			return e
		}
		p.link(n)
	}
}

// filters parses filters, tests and calls after an expression.
func (p *parser) filters(e expr) expr {
	for n := 0; ; n++ {
		t := p.current()
		switch {
		case t.is("|"):
			p.next()
			e = p.filter(e)
		case t.is("is"):
			e = p.test(e)
		case t.is("("):
			e = p.call(e)
		default:
			return e
		}
		p.link(n)
	}
}

func (p *parser) attribute(e expr) expr {
	line := p.next().line
	t := p.next()
	switch t.kind {
	case tokenName:
		return &attrNode{e, t.text, line}
	case tokenInteger:
		return &itemNode{e, &constNode{number(t)}, line}
	}
	failAt(t.line, "expected name or number after a dot")
	return nil
}

func (p *parser) subscript(e expr) expr {
	line := p.expect("[").line
	var keys []expr
	var slice *sliceNode
	for !p.current().is("]") {
		if len(keys) > 0 {
			p.expect(",")
		}
		key, s := p.key(e, line)
		keys = append(keys, key)
		if s != nil {
			slice = s
		}
	}
	p.expect("]")
	switch {
	case slice != nil && len(keys) > 1:
		failAt(line, "a slice among several indices")
	case slice != nil:
		return slice
	case len(keys) == 1:
		return &itemNode{e, keys[0], line}
	}
	return &itemNode{e, &tupleNode{keys}, line}
}

// key parses an index of e, or a slice, which it returns as the whole expression.
func (p *parser) key(e expr, line int) (expr, *sliceNode) {
	s := &sliceNode{of: e, line: line}
	if !p.current().is(":") {
		key := p.expression()
		if !p.current().is(":") {
			return key, nil
		}
		s.start = key
	}
	p.expect(":")
	ends := func() bool { t := p.current(); return t.is("]") || t.is(",") }
	if !p.current().is(":") && !ends() {
		s.stop = p.expression()
	}
	if p.skip(":") && !ends() {
		s.step = p.expression()
	}
	return nil, s
}

func (p *parser) call(e expr) *callNode {
	c := &callNode{of: e, line: p.line()}
	c.argumentList = p.arguments()
	return c
}

func (p *parser) arguments() (a argumentList) {
	line := p.expect("(").line
	ensure := func(ok bool) {
		if !ok {
			failAt(line, "invalid syntax for function call expression")
		}
	}
	for first := true; !p.current().is(")"); first = false {
		if !first {
			if p.expect(","); p.current().is(")") {
				break
			}
		}
		switch t := p.current(); {
		case p.skip("*"):
			ensure(a.rest == nil && a.dict == nil)
			a.rest = p.expression()
		case p.skip("**"):
			ensure(a.dict == nil)
			a.dict = p.expression()
		case t.kind == tokenName && p.peek().is("="):
			ensure(a.dict == nil && !slices.Contains(a.names, t.text))
			p.next()
			p.next()
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression())
		default:
			ensure(a.rest == nil && a.dict == nil && len(a.named) == 0)
			a.positional = append(a.positional, p.expression())
		}
	}
	p.expect(")")
	return a
}

// dotted parses the name of a filter or a test.
func (p *parser) dotted() string {
	name := p.expectKind(tokenName).text
	for p.skip(".") {
		name += "." + p.expectKind(tokenName).text
	}
	return name
}

// filter parses one filter, after the bar.
func (p *parser) filter(e expr) *filterNode {
	f := &filterNode{of: e, line: p.line(), name: p.dotted()}
	if p.current().is("(") {
		f.argumentList = p.arguments()
	}
	return f
}

// blockFilters parses the filters of a block, or returns nil.
func (p *parser) blockFilters() *filterNode {
	var last *filterNode
	for n := 0; p.skip("|"); n++ {
		p.link(n)
		if last == nil {
			last = p.filter(nil)
		} else {
			last = p.filter(last)
		}
	}
	return last
}

func (p *parser) test(e expr) expr {
	p.next()
	negated := p.skip("not")
	t := &testNode{of: e, line: p.line(), name: p.dotted()}
	next := p.current()
	switch {
	case next.is("("):
		t.argumentList = p.arguments()
	case next.is("else"), next.is("or"), next.is("and"):
	case next.is("is"):
		failAt(next.line, "tests with is cannot be chained")
	case next.kind == tokenName, next.kind == tokenString, next.kind == tokenInteger, next.kind == tokenFloat,
		next.is("["), next.is("{"):
		defer p.enter()()
		t.positional = []expr{p.postfix(p.primary(false))}
	}
	if negated {
		return &notNode{t}
	}
	return t
}
