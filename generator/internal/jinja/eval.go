package jinja

func (n *constNode) eval(*run) value { return n.value }

func (n *nameNode) eval(r *run) value {
	v := *r.at(n.at)
	if isMissing(v) {
		return &undefined{name: literal(n.name)}
	}
	return v
}

func (n *nsNode) eval(*run) value { return nil } // it is only assigned

func evalAll(r *run, nodes []expr) []value {
	values := make([]value, len(nodes))
	for i, n := range nodes {
		values[i] = n.eval(r)
	}
	return values
}

func (n *tupleNode) eval(r *run) value { return &tuple{items: evalAll(r, n.items)} }
func (n *listNode) eval(r *run) value  { return &list{evalAll(r, n.items)} }

func (n *dictNode) eval(r *run) value {
	d := newDict(len(n.keys))
	for i, key := range n.keys {
		k := key.eval(r)
		d.set(k, n.values[i].eval(r))
	}
	return d
}

func (n *condNode) eval(r *run) value {
	if truth(n.test.eval(r)) {
		return n.yes.eval(r)
	}
	if n.no == nil {
		return &undefined{hint: "the inline if-expression evaluated to false and no else section was defined"}
	}
	return n.no.eval(r)
}

func (n *andNode) eval(r *run) value {
	if v := n.left.eval(r); !truth(v) {
		return v
	}
	return n.right.eval(r)
}

func (n *orNode) eval(r *run) value {
	if v := n.left.eval(r); truth(v) {
		return v
	}
	return n.right.eval(r)
}

func (n *notNode) eval(r *run) value { return !truth(n.of.eval(r)) }

func (n *concatNode) eval(r *run) value {
	var b builder
	for _, v := range evalAll(r, n.parts) {
		b.add(r.text(v))
	}
	return b.str()
}

// eval compares neighbours until two do not compare.
func (n *compareNode) eval(r *run) value {
	left := n.first.eval(r)
	for i, op := range n.ops {
		right := n.rest[i].eval(r)
		r.line = n.line
		if !compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (n *attrNode) eval(r *run) value {
	of := n.of.eval(r)
	r.line = n.line
	return getAttribute(of, literal(n.name))
}

func (n *itemNode) eval(r *run) value {
	of, key := n.of.eval(r), n.key.eval(r)
	r.line = n.line
	return getItem(of, key)
}

func (n *sliceNode) eval(r *run) value {
	of := n.of.eval(r)
	bounds := [3]value{}
	for i, e := range []expr{n.start, n.stop, n.step} {
		if e != nil {
			bounds[i] = e.eval(r)
		}
	}
	r.line = n.line
	return slice(of, bounds[0], bounds[1], bounds[2])
}

func (n *unaryNode) eval(r *run) value {
	v := n.of.eval(r)
	r.line = n.line
	return unary(n.op, v)
}

func (n *binaryNode) eval(r *run) value {
	left := n.left.eval(r)
	right := n.right.eval(r)
	r.line = n.line
	return binary(r, n.op, left, right)
}

// eval returns the values of an argument list.
func (a *argumentList) eval(r *run) (values arguments) {
	if len(a.positional) > 0 {
		values.positional = evalAll(r, a.positional)
	}
	for i, e := range a.named {
		values.names = append(values.names, literal(a.names[i]))
		values.named = append(values.named, e.eval(r))
	}
	if a.rest != nil {
		values.positional = append(values.positional, collect(r, a.rest.eval(r))...)
	}
	if a.dict != nil {
		values.addDict(a.dict.eval(r))
	}
	return values
}

// addDict adds the arguments of a dict.
func (a *arguments) addDict(v value) {
	d, ok := v.(*dict)
	if !ok {
		fail("the argument after ** must be a mapping, not %s", typeName(v))
	}
	for i, key := range d.keys {
		name, ok := key.(str)
		if !ok {
			fail("keywords must be strings")
		}
		for _, n := range a.names {
			if n.text == name.text {
				fail("multiple values for keyword argument '%.100s'", name.text)
			}
		}
		a.names, a.named = append(a.names, name), append(a.named, d.values[i])
	}
}

// prepare returns the called value and the arguments.
func (n *callNode) prepare(r *run) (value, arguments) {
	of := n.of.eval(r)
	a := n.argumentList.eval(r)
	r.line = n.line
	return of, a
}

func (n *callNode) eval(r *run) value {
	of, a := n.prepare(r)
	return r.callValue(of, a)
}

// callValue calls a value.
func (r *run) callValue(of value, a arguments) value {
	switch f := of.(type) {
	case *macro:
		return f.call(r, a)
	case *method:
		return f.call(r, a)
	case *undefined:
		f.fail()
	case *joiner:
		a.noNames("joiner")
		return f.next()
	case *loop:
		if f.again == nil {
			fail("the loop must have the 'recursive' marker to be called recursively")
		}
		return f.again(a.bind("loop", 1, "iterable")[0])
	}
	fail("'%s' object is not callable", typeName(of))
	return nil
}

func (n *filterNode) eval(r *run) value { return n.filterValue(r, n.of.eval(r)) }

// filterValue applies the filter to a value.
func (n *filterNode) filterValue(r *run, v value) value {
	a := n.argumentList.eval(r)
	r.line = n.line
	if n.filter == nil {
		fail("no filter named %.100s", n.name)
	}
	return n.filter.apply(r, v, a)
}

func (n *testNode) eval(r *run) value {
	v := n.of.eval(r)
	a := n.argumentList.eval(r)
	r.line = n.line
	if n.test == nil {
		fail("no test named %.100s", n.name)
	}
	return n.test.apply(r, v, a)
}
