package jinja

import "strings"

// Bounds on the nesting of a template.
const (
	maxNesting = 150 // expressions and statements in each other
	maxChain   = 500 // operators of one precedence, or filters, attributes and calls, in a row
)

// parser turns tokens into nodes, with the grammar of Jinja2.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) current() token { return p.tokens[p.at] }
func (p *parser) line() int      { return p.tokens[p.at].line }

// peek returns the token after the current one.
func (p *parser) peek() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

// next returns the current token and goes on to the next one.
func (p *parser) next() token {
	t := p.tokens[p.at]
	p.at = min(p.at+1, len(p.tokens)-1)
	return t
}

// skip goes on if the current token is an operator or name of that text.
func (p *parser) skip(text string) bool {
	if !p.current().is(text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(text string) token {
	if t := p.current(); !t.is(text) {
		p.unexpected(text)
	}
	return p.next()
}

func (p *parser) expectKind(k kind) token {
	if p.current().kind != k {
		p.unexpected(token{kind: k, text: "name"}.describe())
	}
	return p.next()
}

func (p *parser) unexpected(want string) {
	failAt(p.line(), "expected %s, got %s", want, p.current().describe())
}

// enter bounds nesting. Call the result at the end.
func (p *parser) enter() (leave func()) {
	if p.depth++; p.depth > maxNesting {
		failAt(p.line(), "more than %d expressions and statements are nested", maxNesting)
	}
	return func() { p.depth-- }
}

// link bounds a chain of n operators.
func (p *parser) link(n int) {
	if n > maxChain {
		failAt(p.line(), "more than %d operators in a row", maxChain)
	}
}

func (p *parser) expression() expr {
	defer p.enter()()
	e := p.or()
	for n := 0; p.current().is("if"); n++ {
		p.link(n)
		c := &condNode{yes: e, line: p.next().line}
		c.test = p.or()
		if p.skip("else") {
			c.no = p.expression()
		}
		e = c
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for n := 0; p.skip("or"); n++ {
		p.link(n)
		e = &orNode{e, p.and()}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for n := 0; p.skip("and"); n++ {
		p.link(n)
		e = &andNode{e, p.not()}
	}
	return e
}

func (p *parser) not() expr {
	if p.skip("not") {
		defer p.enter()()
		return &notNode{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.line()
	e := p.sum()
	var ops []string
	var rest []expr
	for {
		switch t := p.current(); {
		case t.kind == tokenOperator && strings.Contains(" == != < <= > >= ", " "+t.text+" "), t.is("in"):
			ops = append(ops, p.next().text)
		case t.is("not") && p.peek().is("in"):
			p.next()
			p.next()
			ops = append(ops, "not in")
		case len(ops) == 0:
			return e
		default:
			return &compareNode{e, ops, rest, line}
		}
		rest = append(rest, p.sum())
	}
}

// chain parses operators of one precedence, from left to right.
func (p *parser) chain(operand func() expr, operators string) expr {
	e := operand()
	for n := 0; ; n++ {
		t := p.current()
		if t.kind != tokenOperator || !strings.Contains(operators, " "+t.text+" ") {
			return e
		}
		p.link(n)
		p.next()
		e = &binaryNode{t.text, e, operand(), t.line}
	}
}

func (p *parser) sum() expr { return p.chain(p.concat, " + - ") }

func (p *parser) concat() expr {
	parts := []expr{p.product()}
	for p.skip("~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return &concatNode{parts}
}

func (p *parser) product() expr { return p.chain(p.power, " * / // % ") }
func (p *parser) power() expr   { return p.chain(func() expr { return p.unary(true) }, " ** ") }

func (p *parser) unary(withFilter bool) (e expr) {
	if t := p.current(); t.is("-") || t.is("+") {
		leave := p.enter()
		p.next()
		e = &unaryNode{t.text, p.unary(false), t.line}
		leave()
	} else {
		e = p.primary(false)
	}
	e = p.postfix(e)
	if withFilter {
		e = p.filters(e)
	}
	return e
}

// primary parses a name or a literal. namespaces also allows a.b, which is assigned.
func (p *parser) primary(namespaces bool) expr {
	switch t := p.current(); t.kind {
	case tokenName:
		p.next()
		return p.name(t, namespaces)
	case tokenString:
		var s strings.Builder
		for p.current().kind == tokenString {
			s.WriteString(p.next().text)
		}
		return &constNode{literal(s.String())}
	case tokenInteger, tokenFloat:
		return &constNode{number(p.next())}
	case tokenOperator:
		switch t.text {
		case "(":
			p.next()
			e := p.tuple(tupleOptions{parentheses: true})
			p.expect(")")
			return e
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	failAt(p.line(), "unexpected %s", p.current().describe())
	return nil
}

func (p *parser) name(t token, namespaces bool) expr {
	switch t.text {
	case "true", "True":
		return &constNode{true}
	case "false", "False":
		return &constNode{false}
	case "none", "None":
		return &constNode{nil}
	}
	if namespaces && p.skip(".") {
		return &nsNode{name: t.text, attr: p.expectKind(tokenName).text, line: t.line}
	}
	return &nameNode{name: t.text, line: t.line}
}

// tupleOptions say how to parse expressions with commas between them.
type tupleOptions struct {
	targets     bool   // only names and literals
	namespaces  bool   // with targets: also a.b
	noCondition bool   // no conditional expressions
	parentheses bool   // in parentheses, so it may be empty
	end         string // a name that ends it
}

func (p *parser) tuple(o tupleOptions) expr {
	item := p.expression
	switch {
	case o.targets:
		item = func() expr { defer p.enter()(); return p.primary(o.namespaces) }
	case o.noCondition:
		item = func() expr { defer p.enter()(); return p.or() }
	}
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if p.tupleEnds(o.end) {
			break
		}
		items = append(items, item())
		if !p.current().is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple && len(items) > 0 {
		return items[0]
	}
	if !isTuple && !o.parentheses {
		failAt(p.line(), "expected an expression, got %s", p.current().describe())
	}
	return &tupleNode{items}
}

func (p *parser) tupleEnds(end string) bool {
	t := p.current()
	return t.kind == tokenPrintEnd || t.kind == tokenBlockEnd || t.kind == tokenOperator && t.text == ")" ||
		end != "" && t.kind == tokenName && t.text == end
}

func (p *parser) list() expr {
	var items []expr
	p.expect("[")
	for !p.current().is("]") {
		if len(items) > 0 {
			if p.expect(","); p.current().is("]") {
				break
			}
		}
		items = append(items, p.expression())
	}
	p.expect("]")
	return &listNode{items}
}

func (p *parser) dict() expr {
	d := &dictNode{}
	p.expect("{")
	for !p.current().is("}") {
		if len(d.keys) > 0 {
			if p.expect(","); p.current().is("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.expect(":")
		d.values = append(d.values, p.expression())
	}
	p.expect("}")
	return d
}
