package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"reel/generator/internal/model"
	"reel/generator/internal/scheduler"
	"reel/kernels/device"
	"reel/protocol"
)

// Options configures an Engine.
type Options struct {
	Context    int // tokens of a sequence at most
	MaxBatch   int // sequences that run at once
	MaxQueue   int // sequences that wait for a place
	Chunk      int // prompt tokens of one prefill step
	PageTokens int // tokens a KV page holds
	Pages      int // KV pages
}

// Engine runs one model on one device. Submit, Cancel, Drain, Stop and Stats are
// safe from any goroutine; everything else happens on the one that runs Run.
type Engine struct {
	opts  Options
	model *model.Model
	eos   map[int32]bool

	mu       sync.Mutex
	changed  sync.Cond // inbox, draining or stopping changed
	inbox    []command
	handles  Handle
	waiting  int // submitted and not yet running
	draining bool
	stopping bool
	stats    Stats

	// Owned by Run's goroutine.
	stream device.Stream
	lane   *model.Lane
	sched  *scheduler.Scheduler
	live   map[Handle]*job
}

// command is a submission, or a cancellation where job is nil.
type command struct {
	handle Handle
	job    *job
}

// New takes all memory that the engine will use on dev.
func New(dev device.Device, m *model.Model, o Options) (*Engine, error) {
	sched, err := scheduler.New(scheduler.Options{MaxBatch: o.MaxBatch, MaxQueue: o.MaxQueue + o.MaxBatch, Chunk: o.Chunk,
		Context: o.Context, PageTokens: o.PageTokens, Pages: o.Pages})
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: o, model: m, sched: sched, eos: map[int32]bool{}, live: map[Handle]*job{}}
	e.changed.L = &e.mu
	for _, id := range m.Config.EOS {
		e.eos[id] = true
	}
	if e.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	e.lane, err = m.NewLane(dev, model.Geometry{MaxRows: max(o.Chunk, o.MaxBatch), MaxBatch: o.MaxBatch, Context: o.Context,
		PageTokens: o.PageTokens, Pages: o.Pages, RingSlots: ringSlots})
	if err != nil {
		return nil, fmt.Errorf("engine: memory of the lane: %w", err)
	}
	e.stats.KV = protocol.KV{PageTokens: o.PageTokens, Pages: o.Pages, Bytes: e.lane.KV.Data.Bytes()}
	return e, nil
}

// ringSlots is how many steps' descriptors and results the rings hold.
const ringSlots = 4

// Submit hands a request to the engine. It returns ErrTooLong, ErrBusy or
// ErrDraining and then has taken nothing.
func (e *Engine) Submit(r *Request) (Handle, error) {
	if len(r.Tokens) < 1 || len(r.Tokens) >= e.opts.Context || r.MaxTokens < 1 {
		return 0, fmt.Errorf("%w: %d tokens in a context of %d", ErrTooLong, len(r.Tokens), e.opts.Context)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.draining || e.stopping:
		return 0, ErrDraining
	case e.waiting >= e.opts.MaxQueue+e.freePlaces():
		return 0, ErrBusy
	}
	e.handles++
	e.waiting++
	e.inbox = append(e.inbox, command{handle: e.handles, job: newJob(e.handles, r)})
	e.changed.Signal()
	return e.handles, nil
}

// freePlaces is how many of those that wait will run at the next step: a
// request that finds a free place does not count as queued.
func (e *Engine) freePlaces() int { return e.opts.MaxBatch - e.stats.Requests.Running }

// Cancel ends a request early. Its Sink still gets its Finish. A handle that has
// finished is ignored.
func (e *Engine) Cancel(h Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inbox = append(e.inbox, command{handle: h})
	e.changed.Signal()
}

// Drain refuses new requests from now on; what runs and waits goes on.
func (e *Engine) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining = true
}

// Stop ends Run; what has not finished gets ErrShutdown.
func (e *Engine) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
	e.changed.Signal()
}

// Stats is a snapshot.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Requests.Waiting = e.waiting
	return s
}

// Run steps until Stop, or until the device fails. It locks its thread: a device
// belongs to one.
func (e *Engine) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		commands, stop := e.take()
		e.apply(commands)
		if stop {
			e.finishAll(ErrShutdown)
			return nil
		}
		b := e.sched.Next()
		if b == nil {
			e.publish(nil)
			e.sleep()
			continue
		}
		if err := e.step(b); err != nil {
			e.fail(err)
			return err
		}
	}
}

// take empties the inbox.
func (e *Engine) take() ([]command, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.inbox
	e.inbox = nil
	return c, e.stopping
}

// sleep waits until there is something to do: an idle engine uses no processor.
func (e *Engine) sleep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.inbox) == 0 && !e.stopping {
		e.changed.Wait()
	}
}

func (e *Engine) apply(commands []command) {
	for _, c := range commands {
		if c.job == nil {
			if j := e.live[c.handle]; j != nil {
				e.end(j, protocol.FinishCancelled, nil)
			}
			continue
		}
		e.live[c.handle] = c.job
		if err := e.sched.Add(&c.job.seq); err != nil {
			e.end(c.job, "", ErrBusy)
		}
	}
}

// fail ends every request with the device's error and refuses further ones.
func (e *Engine) fail(err error) {
	e.Stop()
	commands, _ := e.take()
	e.apply(commands)
	e.finishAll(errors.Join(ErrDevice, err))
}

func (e *Engine) finishAll(err error) {
	for _, j := range e.live {
		e.end(j, "", err)
	}
	e.publish(nil)
}

// publish brings the snapshot for Stats up to date, after step b where there was one.
func (e *Engine) publish(b *scheduler.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Requests.Running = e.sched.Running()
	e.stats.KV.Used = e.opts.Pages - e.sched.FreePages()
	if b == nil {
		return
	}
	if b.Prefill {
		e.stats.Steps.Prefill++
	} else {
		e.stats.Steps.Decode++
	}
	e.stats.Steps.Tokens += uint64(len(b.Sampled))
	e.stats.Steps.Graphs.Eager++
}

// step runs one forward pass and hands out its tokens.
func (e *Engine) step(b *scheduler.Batch) error {
	e.joined(b)
	if err := e.lane.Write(&b.Step); err != nil {
		return err
	}
	if err := e.model.Forward(e.stream, e.lane, model.Shape{Rows: len(b.Step.Rows), Samples: len(b.Step.Samples)}); err != nil {
		return err
	}
	if err := e.stream.Synchronize(); err != nil {
		return err
	}
	for _, q := range b.Served {
		q.Owner.(*job).graphs.Eager++
	}
	e.publish(b)
	e.deliver(b)
	return nil
}

// joined notes the end of the queue for sequences that got their place.
func (e *Engine) joined(b *scheduler.Batch) {
	if len(b.Joined) == 0 {
		return
	}
	now := time.Now()
	for _, q := range b.Joined {
		q.Owner.(*job).admitted = now
	}
	e.unqueued(len(b.Joined))
}

// unqueued notes that n requests no longer wait.
func (e *Engine) unqueued(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting -= n
	e.stats.Requests.Running = e.sched.Running()
}
