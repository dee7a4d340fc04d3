package engine

import (
	"errors"
	"runtime"
	"time"

	"reel/generator/internal/scheduler"
	"reel/graphs"
	"reel/kernels/device"
	"reel/protocol"
)

// flight is a step that was enqueued.
type flight struct {
	batch *scheduler.Batch
	plan  graphs.Plan
}

// Run steps until Stop or Fail, or until the device fails. It locks its thread: a device
// belongs to one. When it returns, all that the engine took is given back.
//
// Each turn enqueues steps until depth are in flight, then waits for the oldest
// and hands out its tokens while the next one runs.
func (e *Engine) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.roll()
	err := e.loop()
	if err != nil {
		err = errors.Join(ErrDevice, err)
	} else {
		err = e.failure()
	}
	ended := err
	if err == nil {
		ended = ErrShutdown
	}
	e.finishAll(ended)
	return errors.Join(err, e.close(err))
}

// failure is what Fail was given, or nil.
func (e *Engine) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// roll starts the roller, unless there is to be none; it ends in close.
func (e *Engine) roll() {
	if e.opts.NoRoller {
		return
	}
	e.roller, e.rolling = graphs.NewRoller(e.pool, e.dev), make(chan error, 1)
	go func() {
		err := e.roller.Run()
		if errors.Is(err, device.ErrSticky) {
			e.lose(err)
		}
		e.rolling <- err
	}()
}

// lose has an engine that may be idle know that the device is lost.
func (e *Engine) lose(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = err
	e.bell.ring()
}

func (e *Engine) loop() error {
	for {
		commands, stop, err := e.take()
		if err = e.apply(commands, err); err == nil {
			err = e.land()
		}
		if err != nil || stop {
			return err
		}
		if err := e.turn(); err != nil {
			return err
		}
	}
}

// turn enqueues what there is to do and waits for the oldest step, or, where
// there is none, for something to do.
func (e *Engine) turn() error {
	if err := e.fill(); err != nil {
		return err
	}
	if err := e.beat(); err != nil {
		return err
	}
	if len(e.flights) > 0 {
		return e.complete()
	}
	e.pool.Maintain(e.next, false)
	e.publish()
	return e.rest()
}

// take empties the inbox; its error is a lost device's.
func (e *Engine) take() ([]command, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.inbox
	e.inbox, e.attend = nil, false
	return c, e.stopping, e.lost
}

// apply does what commands ask. Once the device has failed no page is moved, but
// every request is still taken in, so that it comes to its end with the others.
func (e *Engine) apply(commands []command, failed error) error {
	for _, c := range commands {
		j := e.live[c.handle]
		switch {
		case c.kind == submit:
			e.live[c.handle] = c.job
			if err := e.sched.Add(&c.job.seq); err != nil {
				e.end(c.job, "", ErrBusy)
			}
		case j == nil: // has finished
		case c.kind == cancel:
			e.end(j, protocol.FinishCancelled, nil)
		case c.kind == relocate && failed == nil:
			failed = e.relocate(&j.seq, c.page)
		}
	}
	return failed
}

// fill enqueues steps until depth are in flight or there is nothing to do.
func (e *Engine) fill() error {
	for len(e.flights) < depth {
		b := e.sched.Next()
		if b == nil {
			return nil
		}
		if err := e.enqueue(b); err != nil {
			return err
		}
	}
	return nil
}

// enqueue launches a step. One that is older than a move of pages is rebuilt
// first, and one that names a page in flight waits behind its copy.
func (e *Engine) enqueue(b *scheduler.Batch) error {
	e.joined(b)
	if e.sched.Stale(b) {
		e.sched.Rebuild(b)
	}
	if e.sched.InMotion(b) {
		for _, m := range e.moves {
			if err := e.stream.Wait(m.done); err != nil {
				return err
			}
		}
	}
	if err := e.memory.Write(&b.Step); err != nil {
		return err
	}
	plan := e.pool.Acquire(key(b))
	if err := e.pool.Launch(e.stream, plan, b.Step.Number); err != nil {
		return err
	}
	e.flights = append(e.flights, flight{b, plan})
	e.next = b.Step.Number + 1
	return e.stream.Record(e.events[b.Step.Number%depth])
}

// key is the shape of a step.
func key(b *scheduler.Batch) graphs.Key {
	if b.Prefill {
		return graphs.Prefill(len(b.Step.Rows))
	}
	return graphs.Decode(max(1, len(b.Step.Rows))) // a pulse has no row of its own
}

// complete waits for the oldest step in flight and hands out its tokens.
func (e *Engine) complete() error {
	f := e.flights[0]
	number := f.batch.Step.Number
	if err := e.events[number%depth].Synchronize(); err != nil {
		return err
	}
	copy(e.flights, e.flights[1:])
	e.flights = e.flights[:len(e.flights)-1]
	e.account(f)
	e.beaten()
	if err := e.deliver(f.batch); err != nil {
		return err
	}
	e.sched.Complete(number)
	e.pool.Maintain(number, true)
	e.publish()
	return nil
}

// account counts a step for those that it served.
func (e *Engine) account(f flight) {
	for _, q := range f.batch.Served {
		countPlan(&q.Owner.(*job).graphs, f.plan)
	}
	if len(f.batch.Served) == 0 {
		return // a pulse
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.batch.Prefill {
		e.stats.Steps.Prefill++
	} else {
		e.stats.Steps.Decode++
	}
	e.stats.Steps.Tokens += uint64(len(f.batch.Sampled))
	countPlan(&e.stats.Steps.Graphs, f.plan)
}

func countPlan(g *protocol.Graphs, p graphs.Plan) {
	switch {
	case p.Kind == graphs.Eager:
		g.Eager++
	case p.Kind == graphs.Padded:
		g.Padded++
	case p.Rolled():
		g.Rolled++
	default:
		g.Precaptured++
	}
}

// finishAll refuses further requests and ends every one that there is.
func (e *Engine) finishAll(err error) {
	e.Stop()
	commands, _, _ := e.take()
	for _, c := range commands {
		if c.kind == submit {
			e.live[c.handle] = c.job
		}
	}
	for _, j := range e.live {
		e.end(j, "", err)
	}
}

// publish brings the snapshot for Stats up to date.
func (e *Engine) publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot()
}

// snapshot is publish for a caller that holds e.mu.
func (e *Engine) snapshot() {
	e.stats.Requests.Running = e.sched.Running()
	e.stats.KV.Used = e.opts.Pages - e.sched.FreePages()
}

// ended takes a request of this user, which ran or waited, out of the counts.
func (e *Engine) ended(user uint32, ran bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ran {
		e.tally(user, 0, -1)
	} else {
		e.tally(user, -1, 0)
	}
	e.snapshot()
}

// joined notes the end of the queue for sequences that got their place.
func (e *Engine) joined(b *scheduler.Batch) {
	if len(b.Joined) == 0 {
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range b.Joined {
		q.Owner.(*job).admitted = now
		e.tally(q.User, -1, 1)
	}
	e.stats.Requests.Running = e.sched.Running()
}
