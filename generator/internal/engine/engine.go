// Package engine runs the model. It owns the device, forms steps with the scheduler, launches them, and gives each
// sampled token to its request's Sink.
//
// request.go holds the types of requests, and queue.go decides which are accepted. loop.go is the loop, ahead.go says
// how many steps it has in flight, sequence.go is a request's life in it, and wakeup.go how an idle loop is woken.
// start.go allocates, captures and frees. relocate.go moves KV pages, host_tier.go copies them to host memory and back,
// and files.go reads those in files, which files_write.go writes. format.go bounds what a request draws by masks, and
// mask_wait.go waits for them a moment. late.go forms steps late. draft.go has tokens guessed ahead, draft_model.go by a
// second model. cached.go counts a user's pages. reread.go computes pages for later prompts while nobody waits. check.go
// proves that the pass can be captured.
package engine

import (
	"fmt"
	"sync"
	"time"

	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Options configures an Engine.
type Options struct {
	Context  int // tokens of a sequence at most
	MaxBatch int // slots for everybody; one user never holds more
	Reserve  int // slots past MaxBatch, each for a user that holds none
	MaxQueue int // sequences of one user that wait for a slot; all users together may queue twice as many
	Chunk    int // prompt tokens of one prefill step, at most
	// LongChunk is as in [scheduler.Options]. Of steps with more than Chunk no graph is captured at start, unless
	// Precapture names it.
	LongChunk int
	// MixedRows is as in [scheduler.Options]. The rows of both kinds together are at most those of the longest step.
	// Draft models, EAGLE-3 heads and models for embeddings have no mixed steps.
	MixedRows func(n int) (rows, most int)
	// MixedGraphs is how many graphs of mixed steps are captured at start for each number of generated rows: with the most
	// prompt rows, half as many, and so on; 0: down to 16.
	MixedGraphs int
	// Gap is as in [scheduler.Options]. With one, the second step in flight is formed as late as it may be.
	Gap        time.Duration
	lead       time.Duration // in tests, in place of the constant of late.go; 0: that
	gather     time.Duration // in tests, in place of gatherTime; 0: that
	PageTokens int           // tokens a KV page holds
	Pages      int           // KV pages
	// ReservePages is the number of KV pages kept with each slot of the reserve.
	ReservePages int
	// KVType is the data type of keys and values in the KV pool; the zero value is float32.
	KVType kernels.DType
	// NoWorkspaces takes no memory for workspaces that products on the host leave aside.
	NoWorkspaces bool

	// HostCache is the bound in bytes of the host tier, in pinned memory; 0: there is none.
	HostCache int64
	// PinAfter, when it is closed, begins to pin the host tier's memory; nil: Run begins at once.
	PinAfter  <-chan struct{}
	slabPages int // pages of the host tier that are pinned at a time, in tests; 0: slabBytes
	// Files says that Engine.UseStore will follow. It needs a host tier, which pages are read into.
	Files    bool
	maskTime time.Duration // within which a format makes a mask, in tests; 0: the constant
	// Warn is called with a line for the log; nil: there is no log. It must not block.
	Warn func(line string)
	// CacheScope says whose prompts share KV pages; the zero value is each user's own.
	CacheScope CacheScope

	// Embeddings says that the model is for embeddings: requests have a Vector, and no token is drawn.
	Embeddings bool

	// Draft is what guesses tokens ahead, and DraftTokens how many at most, up to MaxDrafts; 0: none.
	Draft       DraftKind
	DraftTokens int
	// DraftAlways has sequences guess as many tokens as they may in every step, whether or not it pays: for measurements.
	DraftAlways bool
	// DraftModel guesses for DraftModel, the kind: another model with the same tokens, whose RoPE has Context
	// positions.
	DraftModel *model.Model
	// DraftWindow is as in [model.Geometry].
	DraftWindow int
	planDrafts  func([]*scheduler.Sequence) // in tests, in place of the engine's own; nil: that

	// Precapture lists the prompt token counts for which graphs are captured at start, beside those of the decode
	// batches; nil means graphs.DefaultCounts.
	Precapture []int
	// MaxGraphs and GraphMemory, in bytes, limit the graphs that exist at once. With MaxGraphs 0 there are none
	// and every step is launched op by op.
	MaxGraphs   int
	GraphMemory int64
	// NoRoller keeps the graphs of the start: a shape without one always runs padded or eagerly.
	NoRoller bool
	// Allocated is called during New, once its memory is taken; nil: it is not. Passes run and are captured after it.
	Allocated func()
	// Progress is called during New with the share that is done, 0 to 1, and the phase's name.
	Progress func(share float64, phase string)
}

// slots is the most sequences that run at once, those of the reserve included.
func (o Options) slots() int { return o.MaxBatch + o.Reserve }

// Engine runs one model on one device. Its methods are safe from any goroutine, except Check, Close and Run. Only
// Run's goroutine and the roller's call the device.
type Engine struct {
	opts  Options
	dev   device.Device
	model *model.Model
	eos   map[int32]bool

	suppressed []uint32 // a bit for each token that is never drawn; nil: there are none

	coming coming // requests on their way

	mu         sync.Mutex
	wakeup     wakeup // signals that the engine's thread has work
	inbox      []command
	maintain   bool     // the roller has work for Pool.Maintain
	heartbeats []func() // called when a step completes
	handles    Handle   // the last one given out
	waiting    int      // requests submitted and not yet running
	users      map[uint32]tally
	names      map[User]int // queued requests
	stopping   bool
	cause      error // the error given to Fail, or nil
	lost       error // the device's, if the roller or the pinning found it lost
	rereads    rereads
	stats      Stats
	drafted    draftCounts
	awaited    awaited

	graphBytes int64 // device memory that one graph of the start took, on average

	// Owned by Run's goroutine.
	stream    device.Stream
	copies    device.Stream  // copies pages beside the steps
	events    []device.Event // of the steps in flight, by step number modulo depth
	memory    *model.StepMemory
	pool      *graphs.Pool
	roller    *graphs.Roller
	rolling   chan error // receives the roller's error when it ends
	sched     *scheduler.Scheduler
	sequences map[Handle]*sequence // submitted and not finished
	inFlight  []stepInFlight       // oldest first
	moves     []move               // oldest first
	host      hostTier
	files     files
	overslept oversleeping        // of the engine's thread
	over      uint64              // number of a step in flight that has ended earlier than expected
	next      uint64              // number of the next step
	seen      time.Time           // when a step in flight was last seen to run
	ended     time.Time           // the end of the last step
	unsure    int                 // steps until an end may be guessed
	resumed   time.Time           // the end of the last wait for a step; zero while none is in flight
	worked    time.Duration       // between waits for steps, so far, idle excepted
	idle      time.Duration       // since resumed, waiting to form the next step
	pace      time.Duration       // of the last decode step
	result    kernels.Record      // the record read last; kept to reuse its memory
	drawn     []int32             // a step's results of one sequence with a format; kept to reuse its memory
	restores  []kernels.SlotState // of the step being enqueued; kept likewise
	drafts    drafts
}

// command is work for the engine's thread, between two steps.
type command struct {
	kind     commandKind
	handle   Handle
	sequence *sequence     // of submit
	page     int           // of relocate
	question *question     // of cached
	slab     device.Buffer // of addSlab
	mapped   *device.Mapped
	store    *store.Store // of useStore
	read     *pageRead    // of pagesRead
	file     store.ID     // of pageWritten, without failed
	failed   error
	written  chan struct{} // of flush: closed when it is done
	mask     Mask          // of maskMade
	index    int           // of maskMade: the token's
}

type commandKind uint8

const (
	submit commandKind = iota
	cancel
	relocate
	cached
	addSlab
	useStore
	pagesRead
	pageWritten
	flush
	maskMade
	maskLate
)

// depth is how many steps are in flight: one runs and the next waits behind it, so that the device never waits
// for the host.
const depth = 2

// RingSlots is the number of entries of the descriptor ring and of the record ring: twice the steps in flight.
const RingSlots = 2 * depth

// Submit hands a request to the engine. On error the request was not taken; the error is ErrTooLong, ErrBusy,
// ErrDraining, ErrTooManyBiases, ErrOtherModel, or the one given to Fail.
func (e *Engine) Submit(r *Request) (Handle, error) {
	if embeds := e.opts.Embeddings; embeds != (r.Vector != nil) || embeds && len(r.Vector) != e.model.Config.Hidden {
		return 0, ErrOtherModel
	}
	if len(r.Tokens) < 1 || len(r.Tokens) > e.longest() || r.MaxTokens < 1 {
		return 0, fmt.Errorf("%w: %d tokens in a context of %d", ErrTooLong, len(r.Tokens), e.opts.Context)
	}
	s := e.newSequence(r)
	if n := len(s.scheduled.Sampling.Biases); n > kernels.MaxBiases {
		return 0, fmt.Errorf("%w: %d with the %d tokens that the model suppresses, at most %d", ErrTooManyBiases, n,
			len(e.model.Config.Suppressed), kernels.MaxBiases)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != nil:
		return 0, e.cause
	case e.stopping:
		return 0, ErrDraining
	case !e.mayQueue(r.User):
		return 0, ErrBusy
	}
	e.handles++
	s.handle = e.handles
	e.tally(r.User, 1, 0)
	e.rereads.submitted(r)
	e.coming.came(len(r.Tokens))
	e.inbox = append(e.inbox, command{kind: submit, handle: e.handles, sequence: s})
	e.wakeup.signal()
	return e.handles, nil
}

// longest returns the most tokens of a prompt: all of the context, less one for a token to draw.
func (e *Engine) longest() int {
	if e.opts.Embeddings {
		return e.opts.Context
	}
	return e.opts.Context - 1
}

// Cancel ends a request early. Its Sink still gets its Finish. The handle of a finished request is ignored.
func (e *Engine) Cancel(h Handle) { e.send(command{kind: cancel, handle: h}) }

// Relocate moves the index-th KV page of a request to another page of the pool, beside the steps. A page that is
// not in use is left alone. Only tests call it so far.
func (e *Engine) Relocate(h Handle, index int) {
	e.send(command{kind: relocate, handle: h, page: index})
}

func (e *Engine) send(c command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inbox = append(e.inbox, c)
	e.wakeup.signal()
}

// Stop ends Run; unfinished requests end with ErrShutdown.
func (e *Engine) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
	e.wakeup.signal()
}

// Fail ends Run with err; unfinished requests end with err too. It does nothing after Stop.
func (e *Engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.stopping {
		e.cause, e.stopping = err, true
	}
	e.wakeup.signal()
}

// requestMaintenance wakes an idle engine so that it maintains its graphs.
func (e *Engine) requestMaintenance() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.maintain = true
	e.wakeup.signal()
}
