package jinja

func (n *forNode) exec(r *run) signal {
	r.line = n.line
	if n.recursive {
		items := n.iter.eval(r)
		r.out.add(n.recurse(r, r.env, items, 0))
		return signalNone
	}
	return n.loop(r, n.iter.eval(r), nil, 0)
}

// recurse renders a recursive loop over items. env has the variables around the loop.
func (n *forNode) recurse(r *run, env *environment, items value, depth int) str {
	again := func(items value) str { return n.recurse(r, env, items, depth+1) }
	return r.call(newEnvironment(n.function.size, env), func() { n.loop(r, items, again, depth) })
}

// loop renders a loop over items. again is the call of a recursive loop, or nil.
func (n *forNode) loop(r *run, items value, again func(value) str, depth int) signal {
	l := &loop{source: items, again: again, depth0: depth, index0: -1, before: missing, current: missing}
	next := iterate(r, items)
	if n.testFunction != nil {
		next = n.filtered(r, next)
		l.source = missing
	}
	l.next = next
	if n.extended {
		*r.at(n.loopAt) = l
	}
	nothing := true
	for l.advance() {
		r.assign(n.assign, l.current)
		r.begin(n.frame)
		switch r.execAll(n.body) {
		case signalNone:
			nothing = false
		case signalBreak:
			return n.end(r, nothing)
		}
		r.line = n.line
	}
	return n.end(r, nothing)
}

// end renders the part after else. As in Jinja2, an item counts only if its body was rendered to
// its end, without continue.
func (n *forNode) end(r *run, nothing bool) signal {
	if !nothing || len(n.otherwise) == 0 {
		return signalNone
	}
	r.begin(n.elseFrame)
	return r.execAll(n.otherwise)
}

// filtered returns the items that pass the loop's test. In a recursive loop the test's function
// stands around the loop's.
func (n *forNode) filtered(r *run, next pull) pull {
	up := r.env
	if n.recursive {
		up = r.env.up
	}
	env := newEnvironment(n.testFunction.size, up)
	begun := false
	return func() (value, bool) {
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			pass := false
			r.within(env, func() {
				if !begun {
					r.begin(n.testFrame)
					begun = true
				}
				r.assign(n.testMatch, item)
				pass = truth(n.test.eval(r))
			})
			if pass {
				return item, true
			}
		}
	}
}

// loop is the variable of that name.
type loop struct {
	source  value // missing if it has no length
	next    pull
	again   func(value) str
	depth0  int
	index0  int
	size    int // with sized
	sized   bool
	before  value
	current value
	after   value // with peeked
	peeked  bool
	more    bool // with peeked: whether there is an item after this one
	changed value
}

// advance goes on to the next item.
func (l *loop) advance() bool {
	item, ok := l.after, l.more
	if !l.peeked || !ok { // Jinja2 asks again after the end
		item, ok = l.next()
	}
	l.peeked, l.after = false, nil
	if !ok {
		return false
	}
	l.index0++
	l.before, l.current = l.current, item
	return true
}

func (l *loop) peek() (value, bool) {
	if !l.peeked || !l.more {
		l.after, l.more = l.next()
		l.peeked = true
	}
	return l.after, l.more
}

// length returns the number of items. It reads those to come if that is not known.
func (l *loop) length() int {
	if l.sized {
		return l.size
	}
	l.sized = true
	if n, ok := length(l.source); ok {
		l.size = n
		return n
	}
	var rest []value
	for item, ok := l.next(); ok; item, ok = l.next() {
		rest = append(rest, item)
	}
	l.next = pullOf(rest)
	l.size = len(rest) + l.index0 + 1
	if l.peeked && l.more {
		l.size++
	}
	return l.size
}

// attribute returns an attribute of the variable loop.
func (l *loop) attribute(name string) (value, bool) {
	switch name {
	case "index":
		return int64(l.index0 + 1), true
	case "index0":
		return int64(l.index0), true
	case "revindex":
		return int64(l.length() - l.index0), true
	case "revindex0":
		return int64(l.length() - l.index0 - 1), true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.length()), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return &undefined{hint: "there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		if item, more := l.peek(); more {
			return item, true
		}
		return &undefined{hint: "there is no next item"}, true
	case "cycle":
		return &method{"cycle", l.cycle}, true
	case "changed":
		return &method{"changed", l.hasChanged}, true
	}
	return nil, false
}

func (l *loop) cycle(_ *run, a arguments) value {
	a.noNames("cycle")
	if len(a.positional) == 0 {
		fail("no items for cycling given")
	}
	return a.positional[l.index0%len(a.positional)]
}

func (l *loop) hasChanged(r *run, a arguments) value {
	a.noNames("changed")
	v := &tuple{items: a.positional}
	if l.changed != nil && equal(l.changed, v) {
		return false
	}
	l.changed = v
	return true
}
