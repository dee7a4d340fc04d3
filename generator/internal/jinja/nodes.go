package jinja

// node is a part of a template. Its children are in the order of Jinja2's nodes, which decides
// the scope of names.
type node interface {
	children() []node
}

// expr is an expression.
type expr interface {
	node
	eval(r *run) value
}

// stmt is a statement.
type stmt interface {
	node
	exec(r *run) signal
}

// use says what a name is there for.
type use uint8

const (
	load  use = iota
	store     // it is assigned
	param     // it is a macro's parameter or a name that with sets
)

type (
	constNode struct{ value value }
	nameNode  struct {
		name string
		use  use
		line int
		at   place
	}
	// nsNode is the target of an assignment to a namespace's attribute.
	nsNode struct {
		name, attr string
		line       int
		at         place
	}
	tupleNode struct{ items []expr }
	listNode  struct{ items []expr }
	dictNode  struct{ keys, values []expr }
	condNode  struct {
		test, yes, no expr // no may be nil
		line          int
	}
	andNode   struct{ left, right expr }
	orNode    struct{ left, right expr }
	notNode   struct{ of expr }
	unaryNode struct {
		op   string
		of   expr
		line int
	}
	binaryNode struct {
		op          string
		left, right expr
		line        int
	}
	concatNode  struct{ parts []expr }
	compareNode struct {
		first expr
		ops   []string
		rest  []expr
		line  int
	}
	attrNode struct {
		of   expr
		name string
		line int
	}
	itemNode struct {
		of, key expr
		line    int
	}
	// sliceNode is of[start:stop:step]; each of them may be nil.
	sliceNode struct {
		of                expr
		start, stop, step expr
		line              int
	}
	callNode struct {
		of expr
		argumentList
		line int
	}
	// filterNode is a filter; of is nil for the text of a block.
	filterNode struct {
		of   expr
		name string
		argumentList
		line   int
		filter *builtin
	}
	testNode struct {
		of   expr
		name string
		argumentList
		line int
		test *builtin
	}
)

// argumentList holds the arguments of a call.
type argumentList struct {
	positional []expr
	names      []string
	named      []expr
	rest, dict expr // of *rest and **dict, or nil
}

type (
	// outputNode prints its parts. Those that are text of the template are constants.
	outputNode struct {
		parts []expr
		lines []int
	}
	forNode struct {
		target            expr
		iter              expr
		body, otherwise   []stmt
		test              expr
		recursive         bool
		line              int
		extended          bool   // whether the body uses the variable loop
		assign, testMatch target // the target in the body's frame, and in the test's
		loopAt            place
		frame, elseFrame  []entry
		function          *function // of a recursive loop, or nil
		testFunction      *function // or nil
		testFrame         []entry
	}
	ifNode struct {
		tests     []expr
		lines     []int
		bodies    [][]stmt
		otherwise []stmt
	}
	// macroNode is a macro, or the body of a call block.
	macroNode struct {
		name     string
		params   []*nameNode
		defaults []expr // of the last parameters
		body     []stmt
		line     int
		at       place // of the macro's name
		macroCode
	}
	callBlockNode struct {
		call *callNode // nil: the block generation
		body *macroNode
		line int
	}
	filterBlockNode struct {
		filter *filterNode
		body   []stmt
		line   int
		frame  []entry
	}
	withNode struct {
		targets []expr
		values  []expr
		body    []stmt
		line    int
		frame   []entry
		assign  []target
	}
	setNode struct {
		target expr
		value  expr
		line   int
		assign target
	}
	setBlockNode struct {
		target expr
		filter *filterNode // or nil
		body   []stmt
		line   int
		frame  []entry
		assign target
	}
	jumpNode struct {
		signal signal
		line   int
	}
)

// nodesOf converts expressions and statements that are not nil.
func nodesOf[T node](lists ...[]T) (all []node) {
	for _, list := range lists {
		for _, n := range list {
			all = append(all, n)
		}
	}
	return all
}

// present returns the expressions that are not nil.
func present(all ...expr) (nodes []node) {
	for _, e := range all {
		if e != nil {
			nodes = append(nodes, e)
		}
	}
	return nodes
}

func (n *constNode) children() []node   { return nil }
func (n *nameNode) children() []node    { return nil }
func (n *nsNode) children() []node      { return nil }
func (n *tupleNode) children() []node   { return nodesOf(n.items) }
func (n *listNode) children() []node    { return nodesOf(n.items) }
func (n *condNode) children() []node    { return present(n.test, n.yes, n.no) }
func (n *andNode) children() []node     { return present(n.left, n.right) }
func (n *orNode) children() []node      { return present(n.left, n.right) }
func (n *notNode) children() []node     { return present(n.of) }
func (n *unaryNode) children() []node   { return present(n.of) }
func (n *binaryNode) children() []node  { return present(n.left, n.right) }
func (n *concatNode) children() []node  { return nodesOf(n.parts) }
func (n *compareNode) children() []node { return nodesOf([]expr{n.first}, n.rest) }
func (n *attrNode) children() []node    { return present(n.of) }
func (n *itemNode) children() []node    { return present(n.of, n.key) }
func (n *sliceNode) children() []node   { return present(n.of, n.start, n.stop, n.step) }
func (n *callNode) children() []node    { return append(present(n.of), n.nodes()...) }
func (n *filterNode) children() []node  { return append(present(n.of), n.nodes()...) }
func (n *testNode) children() []node    { return append(present(n.of), n.nodes()...) }

func (n *dictNode) children() (all []node) {
	for i := range n.keys {
		all = append(all, n.keys[i], n.values[i])
	}
	return all
}

func (a *argumentList) nodes() []node {
	return append(nodesOf(a.positional, a.named), present(a.rest, a.dict)...)
}

func (n *outputNode) children() []node { return nodesOf(n.parts) }
func (n *jumpNode) children() []node   { return nil }
func (n *withNode) children() []node {
	return append(nodesOf(n.targets, n.values), nodesOf(n.body)...)
}
func (n *setNode) children() []node { return present(n.target, n.value) }

func (n *forNode) children() []node {
	all := append(present(n.target, n.iter), nodesOf(n.body, n.otherwise)...)
	return append(all, present(n.test)...)
}

func (n *ifNode) children() []node {
	all := append(present(n.tests[0]), nodesOf(n.bodies[0])...)
	for i := range n.tests[1:] {
		all = append(append(all, n.tests[i+1]), nodesOf(n.bodies[i+1])...)
	}
	return append(all, nodesOf(n.otherwise)...)
}

func (n *macroNode) children() []node {
	return append(append(nodesOf(n.params), nodesOf(n.defaults)...), nodesOf(n.body)...)
}

func (n *callBlockNode) children() []node {
	if n.call == nil {
		return n.body.children()
	}
	return append([]node{n.call}, n.body.children()...)
}

func (n *filterBlockNode) children() []node { return append(nodesOf(n.body), n.filter) }

func (n *setBlockNode) children() []node {
	all := []node{n.target}
	if n.filter != nil {
		all = append(all, n.filter)
	}
	return append(all, nodesOf(n.body)...)
}
