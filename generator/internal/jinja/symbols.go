package jinja

// Jinja2 compiles a template to Python functions and decides at compile time which of their
// local variables a name refers to. This file has the same rules, after its modules idtracking
// and compiler: some are surprising, and templates rely on them.

// function is a Python function of the compiled template: the template itself, a macro, a
// recursive loop or a loop's test.
type function struct {
	depth int // of functions around it
	size  int // number of variables
	slots map[slotKey]int
}

type slotKey struct {
	level int
	name  string
}

// variable is a local variable of a function.
type variable struct {
	function *function
	index    int
}

// place says where a function finds a variable at run time: of the function that many levels
// around it, the variable of that index.
type place struct{ hops, index int }

// origin says how a frame's variable gets its first value.
type origin uint8

const (
	fromParameter origin = iota // it is assigned otherwise
	fromContext                 // the template's variable of that name
	fromOuter                   // another local variable
	fromNothing                 // it has none
)

// entry is a frame's variable with its origin.
type entry struct {
	at     place
	origin origin
	name   string // with fromContext
	outer  place  // with fromOuter
}

type variableLoad struct {
	origin origin
	name   string
	outer  variable
}

// symbols are the names of a frame: a scope within a function.
type symbols struct {
	parent   *symbols
	function *function
	level    int
	refs     map[string]variable
	order    []variable // of loads
	loads    map[variable]variableLoad
	stores   map[string]bool
}

func newSymbols(parent *symbols, f *function) *symbols {
	s := &symbols{parent: parent, function: f}
	if parent != nil {
		s.level = parent.level + 1
	}
	s.refs, s.loads, s.stores = map[string]variable{}, map[variable]variableLoad{}, map[string]bool{}
	return s
}

// define adds a variable for a name.
func (s *symbols) define(name string, l variableLoad) variable {
	key := slotKey{s.level, name}
	index, ok := s.function.slots[key]
	if !ok {
		index = s.function.size
		s.function.slots[key] = index
		s.function.size++
	}
	v := variable{s.function, index}
	s.refs[name] = v
	s.setLoad(v, l)
	return v
}

func (s *symbols) setLoad(v variable, l variableLoad) {
	if _, ok := s.loads[v]; !ok {
		s.order = append(s.order, v)
	}
	s.loads[v] = l
}

// find returns the variable of a name.
func (s *symbols) find(name string) (variable, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.refs[name]; ok {
			return v, true
		}
	}
	return variable{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if outer, ok := s.parent.find(name); ok {
		s.define(name, variableLoad{origin: fromOuter, outer: outer})
		return
	}
	s.define(name, variableLoad{origin: fromNothing})
}

func (s *symbols) parameter(name string) variable {
	s.stores[name] = true
	return s.define(name, variableLoad{origin: fromParameter})
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, variableLoad{origin: fromContext, name: name})
	}
}

func (s *symbols) copy() *symbols {
	c := newSymbols(s.parent, s.function)
	c.level = s.level
	c.merge(s)
	return c
}

func (s *symbols) merge(from *symbols) {
	for name, v := range from.refs {
		s.refs[name] = v
	}
	for _, v := range from.order {
		s.setLoad(v, from.loads[v])
	}
	for name := range from.stores {
		s.stores[name] = true
	}
}

// join takes the names of the branches of an if: those that a branch stores may come from
// around it.
func (s *symbols) join(branches ...*symbols) {
	stored := map[string]bool{}
	for _, b := range branches {
		for name := range b.stores {
			if !s.stores[name] {
				stored[name] = true
			}
		}
	}
	for _, b := range branches {
		s.merge(b)
	}
	for name := range stored {
		v, _ := s.find(name)
		l := variableLoad{origin: fromContext, name: name}
		if outer, ok := s.parent.find(name); ok {
			l = variableLoad{origin: fromOuter, outer: outer}
		}
		s.setLoad(v, l)
	}
}

// visit collects the names of a node that belong to this frame.
func (s *symbols) visit(n node) {
	switch n := n.(type) {
	case *nameNode:
		s.visitName(n)
	case *nsNode:
		s.load(n.name)
	case *ifNode:
		s.visitIf(n)
	case *macroNode:
		s.store(n.name)
	case *setNode:
		s.visit(n.value)
		s.visit(n.target)
	case *forNode:
		s.visit(n.iter)
	case *callBlockNode:
		if n.call != nil {
			s.visit(n.call)
		}
	case *filterBlockNode:
		s.visit(n.filter)
	case *withNode:
		visitAll(s, n.values)
	case *setBlockNode:
		s.visit(n.target)
	default:
		visitAll(s, n.children())
	}
}

func visitAll[T node](s *symbols, nodes []T) {
	for _, n := range nodes {
		s.visit(n)
	}
}

func (s *symbols) visitName(n *nameNode) {
	switch n.use {
	case load:
		s.load(n.name)
	case store:
		s.store(n.name)
	case param:
		s.parameter(n.name)
	}
}

// visitIf visits the test and the branches. Jinja2 takes each elif for an if in one branch.
func (s *symbols) visitIf(n *ifNode) {
	s.visit(n.tests[0])
	body, elifs, otherwise := s.copy(), s.copy(), s.copy()
	visitAll(body, n.bodies[0])
	for i := range n.tests[1:] {
		elifs.visitIf(&ifNode{tests: n.tests[i+1 : i+2], bodies: n.bodies[i+1 : i+2]})
	}
	visitAll(otherwise, n.otherwise)
	s.join(body, elifs, otherwise)
}

// visitTarget visits a loop's target, whose names are parameters.
func (s *symbols) visitTarget(target expr) {
	switch n := target.(type) {
	case *nameNode:
		s.parameter(n.name)
	case *tupleNode:
		for _, item := range n.items {
			s.visitTarget(item)
		}
	}
}

// undeclared returns which of some names the nodes load before they store them.
func undeclared[T node](nodes []T, names ...string) map[string]bool {
	open, found := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		open[name] = true
	}
	var visit func(n node)
	visit = func(n node) {
		if name, ok := n.(*nameNode); ok {
			if name.use == load && open[name.name] {
				found[name.name] = true
			} else {
				delete(open, name.name)
			}
		}
		for _, child := range n.children() {
			visit(child)
		}
	}
	for _, n := range nodes {
		visit(n)
	}
	return found
}
