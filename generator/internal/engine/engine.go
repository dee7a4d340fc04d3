package engine

import (
	"fmt"
	"sync"

	"reel/generator/internal/model"
	"reel/generator/internal/scheduler"
	"reel/graphs"
	"reel/kernels"
	"reel/kernels/device"
	"reel/protocol"
)

// Options configures an Engine.
type Options struct {
	Context    int // tokens of a sequence at most
	MaxBatch   int // sequences of one user that run at once
	Reserve    int // places past MaxBatch, each for a user that holds none
	MaxQueue   int // sequences of one user that wait for a place; of all users twice as many
	Chunk      int // prompt tokens of one prefill step
	PageTokens int // tokens a KV page holds
	Pages      int // KV pages
	// ReservePages is how many KV pages are kept with each place of the reserve.
	ReservePages int
	// KVType is how keys and values are stored; the zero value is float32.
	KVType kernels.DType

	// Precapture lists the prompt token counts whose graphs are captured at
	// start, beside those of the decode batches; nil is graphs.DefaultCounts.
	Precapture []int
	// MaxGraphs and GraphMemory, in bytes, bound the graphs that exist at once.
	// With MaxGraphs 0 there are none: every step is launched op by op.
	MaxGraphs   int
	GraphMemory int64
	// NoRoller leaves the graphs as they are at start: a shape that has none runs
	// padded or eagerly for good.
	NoRoller bool
	// Progress is told the share of the start that is done, 0 to 1.
	Progress func(share float64, what string)
}

// Engine runs one model on one device. Submit, Cancel, Stop and Stats are safe
// from any goroutine; everything else happens on the one that runs Run, which
// with the roller's is the only one that calls the device.
type Engine struct {
	opts  Options
	dev   device.Device
	model *model.Model
	eos   map[int32]bool

	mu       sync.Mutex
	bell     bell // something for the engine's thread to do
	inbox    []command
	attend   bool     // the roller has something for Pool.Maintain
	pulses   []func() // wait for a step to complete
	handles  Handle
	waiting  int              // submitted and not yet running
	users    map[uint32]tally // that have any requests
	stopping bool
	cause    error // why Fail stopped it, else nil
	lost     error // of the device, as the roller met it
	stats    Stats

	graphBytes int64 // of device memory that one graph of the start took

	// Owned by Run's goroutine.
	stream  device.Stream
	copies  device.Stream  // moves pages beside the steps
	events  []device.Event // of the steps in flight, by number
	memory  *model.StepMemory
	pool    *graphs.Pool
	roller  *graphs.Roller
	rolling chan error // the roller's end
	sched   *scheduler.Scheduler
	live    map[Handle]*job
	flights []flight // steps enqueued and not yet completed, oldest first
	moves   []move
	next    uint64         // number of the next step
	result  kernels.Result // read last; kept for its memory
}

// places is how many sequences run at once at most, those of the reserve included.
func (o Options) places() int { return o.MaxBatch + o.Reserve }

// tally counts the requests of one user.
type tally struct{ queued, running int }

// command is for the engine's thread, between two steps.
type command struct {
	kind   commandKind
	handle Handle
	job    *job // of submit
	page   int  // of relocate
}

type commandKind uint8

const (
	submit commandKind = iota
	cancel
	relocate
)

// depth is how many steps are enqueued at once: one runs, the next waits behind
// it, so that the device never waits for the host.
const depth = 2

// RingSlots is how many step descriptors, and results, the rings hold.
const RingSlots = 2 * depth

// Submit hands a request to the engine. It returns ErrTooLong, ErrBusy, ErrDraining
// or what Fail was given, and then has taken nothing.
func (e *Engine) Submit(r *Request) (Handle, error) {
	if len(r.Tokens) < 1 || len(r.Tokens) >= e.opts.Context || r.MaxTokens < 1 {
		return 0, fmt.Errorf("%w: %d tokens in a context of %d", ErrTooLong, len(r.Tokens), e.opts.Context)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != nil:
		return 0, e.cause
	case e.stopping:
		return 0, ErrDraining
	case !e.mayQueue(e.users[r.User]):
		return 0, ErrBusy
	}
	e.handles++
	e.tally(r.User, 1, 0)
	e.inbox = append(e.inbox, command{kind: submit, handle: e.handles, job: newJob(e.handles, r)})
	e.bell.ring()
	return e.handles, nil
}

// mayQueue reports whether a user with these requests may queue one more. A user
// may take no more places in the queue than it leaves free, so there is always
// one for another. A request that finds a place in the batch counts as none.
func (e *Engine) mayQueue(mine tally) bool {
	places := e.opts.MaxQueue + e.freePlaces(mine)
	return mine.queued < min(places, 2*places-e.waiting)
}

// freePlaces is how many places in the batch a user could take now: those of the
// reserve are for users that hold none.
func (e *Engine) freePlaces(mine tally) int {
	running := e.stats.Requests.Running
	if mine.running == 0 && running >= e.opts.MaxBatch {
		return min(1, e.opts.places()-running)
	}
	return max(0, e.opts.MaxBatch-running)
}

// tally notes that a user has so many more requests, or fewer. e.mu is held.
func (e *Engine) tally(user uint32, queued, running int) {
	t := e.users[user]
	t.queued, t.running = t.queued+queued, t.running+running
	e.waiting += queued
	if e.users[user] = t; t == (tally{}) {
		delete(e.users, user)
	}
}

// Cancel ends a request early. Its Sink still gets its Finish. A handle that has
// finished is ignored.
func (e *Engine) Cancel(h Handle) { e.send(command{kind: cancel, handle: h}) }

// Relocate moves the index-th KV page of a request to another place of the
// pool, beside the steps. A page that is not in use is left alone.
func (e *Engine) Relocate(h Handle, index int) {
	e.send(command{kind: relocate, handle: h, page: index})
}

func (e *Engine) send(c command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inbox = append(e.inbox, c)
	e.bell.ring()
}

// Stop ends Run; what has not finished gets ErrShutdown.
func (e *Engine) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
	e.bell.ring()
}

// Fail ends Run with err, and what has not finished ends with err too. It does nothing
// after Stop.
func (e *Engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.stopping {
		e.cause, e.stopping = err, true
	}
	e.bell.ring()
}

// wake has an idle engine look after its graphs.
func (e *Engine) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attend = true
	e.bell.ring()
}

// Stats is a snapshot.
func (e *Engine) Stats() Stats {
	g := e.pool.Stats()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Requests.Waiting = e.waiting
	s.Graphs = graphStatus(g)
	s.Graphs.GraphBytes = e.graphBytes
	return s
}

func graphStatus(g graphs.Stats) protocol.GraphPool {
	return protocol.GraphPool{Live: g.Live, MaxGraphs: g.MaxGraphs, Bytes: g.Bytes, Budget: g.Budget,
		Precaptured: g.Precaptured, Rolled: g.Rolled, Evicted: g.Evicted, Failed: g.Failed, Failure: g.Failure, Refused: g.Refused,
		Exact: g.Exact, Padded: g.Padded, Eager: g.Eager, Wishes: g.CaptureRequests, Roller: g.Roller, CaptureS: g.CaptureTime.Seconds(), RollS: g.RollTime.Seconds(),
		CaptureMedianMS: milliseconds(g.CaptureP50)}
}
