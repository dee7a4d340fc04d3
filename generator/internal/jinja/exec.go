package jinja

func (n *outputNode) exec(r *run) signal {
	for i, part := range n.parts {
		if c, ok := part.(*constNode); ok {
			if s, ok := c.value.(str); ok {
				r.out.add(s)
				continue
			}
		}
		r.line = n.lines[i]
		r.out.add(r.text(part.eval(r)))
	}
	return signalNone
}

func (n *ifNode) exec(r *run) signal {
	for i, test := range n.tests {
		r.line = n.lines[i]
		if truth(test.eval(r)) {
			return r.execAll(n.bodies[i])
		}
	}
	return r.execAll(n.otherwise)
}

func (n *jumpNode) exec(*run) signal { return n.signal }

func (n *setNode) exec(r *run) signal {
	r.line = n.line
	r.checkNamespaces(n.assign)
	r.assign(n.assign, n.value.eval(r))
	return signalNone
}

func (n *setBlockNode) exec(r *run) signal {
	r.begin(n.frame)
	text, s := r.capture(func() signal { return r.execAll(n.body) })
	if s != signalNone {
		return s
	}
	r.line = n.line
	var v value = text
	if n.filter != nil {
		v = n.filter.apply(r, text)
	}
	r.checkNamespaces(n.assign)
	r.assign(n.assign, v)
	return signalNone
}

func (n *filterBlockNode) exec(r *run) signal {
	r.begin(n.frame)
	text, s := r.capture(func() signal { return r.execAll(n.body) })
	if s != signalNone {
		return s
	}
	r.line = n.line
	r.print(n.filter.apply(r, text))
	return signalNone
}

func (n *withNode) exec(r *run) signal {
	r.line = n.line
	r.begin(n.frame)
	for i, v := range n.values {
		r.assign(n.assign[i], v.eval(r))
	}
	return r.execAll(n.body)
}

func (n *macroNode) exec(r *run) signal {
	*r.at(n.at) = &macro{n, r.env}
	return signalNone
}

func (n *callBlockNode) exec(r *run) signal {
	r.line = n.line
	caller := &macro{n.body, r.env}
	if n.call == nil {
		r.print(caller.call(r, arguments{}))
		return signalNone
	}
	of, a := n.call.prepare(r)
	a.names = append(a.names, literal("caller"))
	a.named = append(a.named, caller)
	r.print(r.callValue(of, a))
	return signalNone
}

// print prints the result of a block, which Jinja2 does not convert to a text.
func (r *run) print(v value) { r.out.add(textOf(v, "the result of a block")) }

// apply applies a filter, and those under it, to the text of a block.
func (n *filterNode) apply(r *run, text str) value {
	var v value = text
	if inner, ok := n.of.(*filterNode); ok && n.of != nil {
		v = inner.apply(r, text)
	}
	return n.filterValue(r, v)
}
