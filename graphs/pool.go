package graphs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"reel.internal/reel/kernels/device"
)

// ErrIdentity means that a graph was captured over other memory, or on another
// device, than the step is about to use.
var ErrIdentity = errors.New("graphs: the graph belongs to another device or other memory")

// ErrEvicted means that the plan's graph was evicted after Acquire. A plan must be
// launched before the next Maintain.
var ErrEvicted = errors.New("graphs: the graph was evicted after it was acquired")

// Identity is everything fixed that the nodes of a graph were given. Data that they
// find through memory, by a table of pages for one, may move without changing it.
type Identity struct {
	Device string           // kind of device
	Memory [4]device.Buffer // buffers that the nodes address
	Layout [5]int           // dimensions of that memory
}

// Pass launches the ops of a key's pass on a stream. So that it can be captured, it
// computes nothing on the host, allocates and frees nothing, and never waits.
type Pass func(s device.Stream, k Key) error

// Options configures a Pool.
type Options struct {
	Pass     Pass
	Identity Identity
	// MaxGraphs and Budget (bytes of device memory) bound the execs that exist at
	// once, including those that wait to be destroyed. A driver keeps the memory of
	// a destroyed exec for later ones, so the budget is a high-water mark.
	MaxGraphs int
	Budget    int64
	// Estimate is the expected size of the first exec in bytes.
	Estimate int64
	// Wake wakes an idle engine because Maintain has work. It is called on the
	// roller's thread or on that of Resize, sometimes with the pool's lock held, so it
	// must not call the pool. It may be nil.
	Wake func()
}

// Kind is how a step is launched.
type Kind uint8

// The kinds of launch.
const (
	Eager  Kind = iota // op by op
	Exact              // a graph of the step's own shape
	Padded             // a graph of a larger shape
)

// Plan is how one step is launched.
type Plan struct {
	Kind  Kind
	Key   Key // shape that is launched: the graph's, or the step's if Kind is Eager
	graph *graph
}

// Rolled reports whether the plan's graph was captured by the roller.
func (p Plan) Rolled() bool { return p.graph != nil && p.graph.rolled }

// graph is a captured pass that is ready to be replayed.
type graph struct {
	key      Key
	exec     device.Exec
	identity Identity
	rolled   bool // captured by the roller
	use
}

// Pool holds the graphs that exist. Only the engine's thread, between steps,
// changes which are live: it calls Acquire, Launch, Maintain, Precapture and Close.
// The [Roller] works through the same lock. Neither holds it during a device call.
type Pool struct {
	opts Options

	mu       sync.Mutex
	changed  sync.Cond // wakes the roller
	live     map[Key]*graph
	families map[Key][]*graph // live graphs by family, smallest first
	evicted  []*graph         // no longer live; a step that replays one may be running
	rebound  bool             // Identity has changed since the last Maintain
	resized  bool             // the bounds have changed since the last Maintain
	step     uint64           // launched last
	decayed  uint64           // step of the last decay
	stats    Stats
	policy   capturePolicy
	pacer    pacer

	// Between engine and roller.
	evictionRequest *captureRequest // the roller needs an eviction for it; or nil
	retired         []*graph        // to be destroyed by the roller
	finished        *graph          // captured by the roller, to be installed; or nil
	pending         int             // captures under way: 0 or 1
	capturing       Key             // shape of the capture under way
	largest         int64           // bytes of the largest exec so far
	stopped         bool            // the roller shall end
	lost            bool            // the device is lost: the roller makes no further call
}

// Stats are the counts of a pool.
type Stats struct {
	Live            int           // graphs that can be acquired
	Bytes           int64         // of all execs that exist
	Peak            int64         // maximum of Bytes so far
	Budget          int64         // see Options
	MaxGraphs       int           // see Options
	Execs           int           // that exist: live ones and those that wait to be destroyed
	Precaptured     uint64        // graphs captured at start
	CaptureTime     time.Duration // of the start's captures together
	CaptureP50      time.Duration // median of capture, instantiation and upload of one graph at start
	Rolled          uint64        // graphs captured by the roller
	RollTime        time.Duration // of the device calls for the roller's captures, failed ones included
	Evicted         uint64        // graphs
	Failed          uint64        // captures
	Failure         string        // error of the last failed capture
	Refused         int           // shapes that failed too often to be tried again
	Exact           uint64        // replays
	Padded          uint64        // replays
	Eager           uint64        // steps launched op by op
	CaptureRequests int           // missed shapes that may yet be captured
	Roller          string        // present activity of the roller
}

// NewPool makes an empty pool.
func NewPool(o Options) *Pool {
	p := &Pool{opts: o, live: map[Key]*graph{}, families: map[Key][]*graph{}, policy: newCapturePolicy(),
		largest: o.Estimate}
	p.changed.L = &p.mu
	p.stats.Budget, p.stats.MaxGraphs, p.stats.Roller = o.Budget, o.MaxGraphs, "off"
	return p
}

// Acquire returns the plan of a step of k: the graph of k if it is live, otherwise the
// smallest live graph that covers k, unless its padding would take longer than launching
// op by op, otherwise op by op. It never captures and never
// waits; a miss becomes a capture request.
func (p *Pool) Acquire(k Key) Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.live[k]; g != nil {
		return Plan{Kind: Exact, Key: k, graph: g}
	}
	g := p.cover(k)
	p.miss(k, g)
	if g != nil {
		return Plan{Kind: Padded, Key: g.key, graph: g}
	}
	return Plan{Kind: Eager, Key: k}
}

// cover returns the smallest live graph that covers k, or nil. One that wastes too much is none.
func (p *Pool) cover(k Key) *graph {
	family := p.families[k.family()]
	from, _ := slices.BinarySearchFunc(family, k.Tokens(), byTokens)
	for _, g := range family[from:] {
		if g.key.covers(k) {
			if g.key.wastes(k) {
				return nil // larger ones waste more
			}
			return g
		}
	}
	return nil
}

func byTokens(g *graph, tokens int) int { return cmp.Compare(g.key.Tokens(), tokens) }

// miss requests a capture of k, which ran padded on g, or eagerly if g is nil. It
// does nothing if a graph of k is on its way.
func (p *Pool) miss(k Key, g *graph) {
	if p.opts.MaxGraphs == 0 || p.isComing(k) {
		return
	}
	saved := eagerRows
	if g != nil {
		saved = g.key.Tokens() - k.Tokens()
	}
	if p.policy.miss(k, saved) {
		p.changed.Broadcast()
	}
}

// isComing reports whether a graph of k is being captured or waits to be installed.
func (p *Pool) isComing(k Key) bool {
	return p.pending > 0 && p.capturing == k || p.finished != nil && p.finished.key == k
}

// Launch enqueues the step numbered step as plan says. Step numbers rise. Errors:
// [ErrIdentity] and [ErrEvicted], before anything is enqueued, and the device's.
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
		plan.graph.replays++
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

// Rebind sets the memory and device that steps use from now on. Graphs of the old
// identity are refused at once and evicted by the next Maintain.
func (p *Pool) Rebind(id Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opts.Identity, p.rebound = id, true
}

// Stats returns the present counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Live, s.CaptureRequests, s.Refused = len(p.live), len(p.policy.requests), p.policy.refused()
	return s
}

// Close destroys every graph. The roller has ended and no step runs.
func (p *Pool) Close() error {
	p.mu.Lock()
	all := append(p.retired, p.evicted...)
	for _, g := range p.live {
		all = append(all, g)
	}
	if p.finished != nil {
		all = append(all, p.finished)
	}
	p.live, p.families, p.evicted, p.retired, p.finished = map[Key]*graph{}, map[Key][]*graph{}, nil, nil, nil
	p.mu.Unlock()
	var releases []func() error
	for _, g := range all {
		releases = append(releases, func() error { return p.destroy(g) })
	}
	return device.GiveBack(releases...)
}
