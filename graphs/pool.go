package graphs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"reel/kernels/device"
)

// ErrIdentity refuses a graph that was captured over other memory, or on another
// device, than the step is about to use.
var ErrIdentity = errors.New("graphs: the graph belongs to another device or other memory")

// ErrEvicted refuses a plan that is older than its graph's eviction: a plan is
// launched before the next Maintain.
var ErrEvicted = errors.New("graphs: the graph was evicted after it was acquired")

// Identity is everything fixed that the nodes of a graph were given. Data that they
// find through memory, by a table of pages for one, may move without changing it.
type Identity struct {
	Device string           // kind of device
	Memory [3]device.Buffer // whose addresses the nodes hold
	Layout [5]int           // dimensions of that memory
}

// Pass launches the ops of a key's pass on a stream. It computes nothing, takes
// and frees nothing and waits for nothing, so that it can be captured.
type Pass func(s device.Stream, k Key) error

// Options configures a Pool.
type Options struct {
	Pass     Pass
	Identity Identity
	// MaxGraphs and Budget, in bytes of device memory, bound the execs that
	// exist at once, those that wait to be destroyed included. A driver keeps
	// what a destroyed exec took and uses it again: the budget is a high-water mark.
	MaxGraphs int
	Budget    int64
	// Estimate is the bytes that a first exec is expected to take.
	Estimate int64
	// Wake is called on the roller's thread when Maintain has something to do that
	// an idle engine would not notice.
	Wake func()
}

// Kind is how a step is launched.
type Kind uint8

// The kinds of launch.
const (
	Eager  Kind = iota // op by op
	Exact              // a graph of the very key
	Padded             // a larger graph
)

// Plan is how one step is launched.
type Plan struct {
	Kind Kind
	// Key is the shape that is launched: that of the graph where there is one.
	Key   Key
	graph *graph
}

// Rolled tells whether the plan's graph was captured while serving.
func (p Plan) Rolled() bool { return p.graph != nil && p.graph.rolled }

// graph is a live exec and its use.
type graph struct {
	key      Key
	exec     device.Exec
	identity Identity
	rolled   bool
	lastStep uint64 // that replays it
	uses     uint64 // decayed
}

// Pool holds the graphs that exist. The engine's thread alone changes which are
// live, between steps: it calls Acquire, Launch, Maintain, Precapture and Close. The
// Roller asks through the same lock, which neither holds across a device call.
type Pool struct {
	opts Options

	mu       sync.Mutex
	changed  sync.Cond
	live     map[Key]*graph
	families map[Key][]*graph // by family, smallest first
	retiring []*graph         // evicted; a step that replays them may still run
	rebound  bool             // the identity has changed since the last Maintain
	resized  bool             // so have the bounds
	step     uint64           // launched last
	decayed  uint64
	stats    Stats
	pacer    pacer

	// Between engine and roller.
	wishes   map[Key]*wish
	failures map[Key]int
	room     *wish    // the roller needs an eviction for this one
	dead     []*graph // to be destroyed by the roller
	finished *graph   // captured by the roller, to be installed
	pending  int      // captures under way: 0 or 1
	making   Key      // what is captured
	largest  int64    // bytes of the largest exec so far
	stopped  bool
	lost     bool // the device: no call is made any more
}

// Stats counts what a pool did.
type Stats struct {
	Live            int
	Bytes           int64 // of all execs that exist
	Peak            int64 // the most of Bytes so far
	Budget          int64
	MaxGraphs       int
	Execs           int           // that exist: live ones and those that wait to be destroyed
	Precaptured     uint64        // captured at start
	CaptureTime     time.Duration // that those took in all
	CaptureP50      time.Duration // of capture, instantiation and upload of one of those
	Rolled          uint64        // captured by the roller
	RollTime        time.Duration // that the device calls of those took, and of captures that failed
	Evicted         uint64
	Failed          uint64 // captures that failed
	Failure         string // why the last one failed
	Refused         int    // keys that failed too often to be tried again
	Exact           uint64 // replays
	Padded          uint64 // replays
	Eager           uint64 // steps launched op by op
	CaptureRequests int    // missed shapes that may yet be captured
	Roller          string // what the roller does now
}

// NewPool makes an empty pool.
func NewPool(o Options) *Pool {
	p := &Pool{opts: o, live: map[Key]*graph{}, families: map[Key][]*graph{}, wishes: map[Key]*wish{}, failures: map[Key]int{}, largest: o.Estimate}
	p.changed.L = &p.mu
	p.stats.Budget, p.stats.MaxGraphs, p.stats.Roller = o.Budget, o.MaxGraphs, "off"
	return p
}

// Acquire says how a step of k is launched, at once: the exact graph, else the
// smallest live one that covers it, else op by op. What was missing becomes a wish.
func (p *Pool) Acquire(k Key) Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.live[k]; g != nil {
		return Plan{Kind: Exact, Key: k, graph: g}
	}
	g := p.cover(k)
	p.wish(k, g)
	if g != nil {
		return Plan{Kind: Padded, Key: g.key, graph: g}
	}
	return Plan{Kind: Eager, Key: k}
}

// cover is the smallest live graph that covers k.
func (p *Pool) cover(k Key) *graph {
	family := p.families[k.family()]
	from, _ := slices.BinarySearchFunc(family, k.Tokens(), byTokens)
	for _, g := range family[from:] {
		if g.key.Covers(k) {
			return g
		}
	}
	return nil
}

func byTokens(g *graph, tokens int) int { return cmp.Compare(g.key.Tokens(), tokens) }

// Launch enqueues the step numbered step as plan says. A graph of another
// identity is refused before anything is enqueued. Step numbers rise.
func (p *Pool) Launch(s device.Stream, plan Plan, step uint64) error {
	if plan.graph == nil {
		if err := p.opts.Pass(s, plan.Key); err != nil {
			return err
		}
	} else if err := p.replay(s, plan.graph); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = step
	switch plan.Kind {
	case Exact:
		p.stats.Exact++
	case Padded:
		p.stats.Padded++
	default:
		p.stats.Eager++
	}
	if plan.graph != nil {
		plan.graph.lastStep = step
		plan.graph.uses++
	}
	return nil
}

func (p *Pool) replay(s device.Stream, g *graph) error {
	p.mu.Lock()
	foreign, gone := g.identity != p.opts.Identity, p.live[g.key] != g
	p.mu.Unlock()
	switch {
	case foreign:
		return fmt.Errorf("%w: %s", ErrIdentity, g.key)
	case gone:
		return fmt.Errorf("%w: %s", ErrEvicted, g.key)
	}
	return s.Replay(g.exec)
}

// Rebind says that steps use other memory, or another device, from now on.
// Graphs of the old identity are refused at once and evicted by the next Maintain.
func (p *Pool) Rebind(id Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opts.Identity, p.rebound = id, true
}

func (p *Pool) evictForeign() {
	for _, g := range p.live {
		if g.identity != p.opts.Identity {
			p.evict(g)
		}
	}
	p.rebound = false
}

// Maintain is the engine's care between two steps: it installs what the roller has
// captured, evicts for the room that the roller asked for, and gives the roller
// what no step after completed needs, to be destroyed. It makes no device call
// and waits for nothing. running says whether sequences run.
func (p *Pool) Maintain(completed uint64, running bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rebound {
		p.evictForeign()
	}
	if p.finished != nil {
		p.install(p.finished)
		p.finished = nil
	}
	if p.resized {
		p.shrink()
	}
	if p.room != nil {
		p.makeRoom()
	}
	p.bury(completed)
	p.pacer.tended(p.step, running, time.Now())
	if p.step >= p.decayed+decaySteps {
		p.decayed = p.step
		p.decay()
	}
	p.changed.Broadcast()
}

// install makes a captured graph live.
func (p *Pool) install(g *graph) {
	if g.identity != p.opts.Identity || p.live[g.key] != nil {
		p.retiring = append(p.retiring, g)
		return
	}
	p.live[g.key] = g
	g.lastStep = p.step // it has not had its chance yet
	family := p.families[g.key.family()]
	at, _ := slices.BinarySearchFunc(family, g.key.Tokens(), byTokens)
	p.families[g.key.family()] = slices.Insert(family, at, g)
}

// evict takes a graph out of reach; steps that replay it may still run.
func (p *Pool) evict(g *graph) {
	delete(p.live, g.key)
	f := g.key.family()
	p.families[f] = slices.DeleteFunc(p.families[f], func(o *graph) bool { return o == g })
	p.retiring = append(p.retiring, g)
	p.stats.Evicted++
}

// bury gives the roller what no running step needs.
func (p *Pool) bury(completed uint64) {
	p.retiring = slices.DeleteFunc(p.retiring, func(g *graph) bool {
		if g.lastStep <= completed {
			p.dead = append(p.dead, g)
			return true
		}
		return false
	})
}

// makeRoom evicts the graph that was least recently used, for the wish that
// waits, unless that graph is the more useful one: then the wish is dropped.
func (p *Pool) makeRoom() {
	w := p.room
	p.room = nil
	victim := p.oldest()
	if victim == nil || p.step-victim.lastStep < recentSteps && victim.uses >= w.count {
		delete(p.wishes, w.key)
		return
	}
	p.evict(victim)
}

const (
	recentSteps = 64   // a graph used within them is not evicted for a rarer one
	decaySteps  = 1024 // after which uses and wishes count half
)

func (p *Pool) decay() {
	for _, g := range p.live {
		g.uses /= 2
	}
	for k, w := range p.wishes {
		if w.count /= 2; w.count == 0 && w != p.room {
			delete(p.wishes, k)
		}
	}
}

// Stats is a snapshot.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Live, s.CaptureRequests = len(p.live), len(p.wishes)
	for _, n := range p.failures {
		if n >= maxFailures {
			s.Refused++
		}
	}
	return s
}
