package engine

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// stepInFlight is a step that was enqueued and has not completed.
type stepInFlight struct {
	batch    *scheduler.Batch
	plan     graphs.Plan
	enqueued time.Time     // just before: whoever is held up after it is enqueued would note it late
	took     time.Duration // once it has completed
	vague    bool          // its end, or the end of the step before it, was guessed
}

// Run serves requests until Stop, Fail or a failure of the device. It locks its goroutine to a thread, since a
// device belongs to one thread. When it returns, everything that New allocated is freed and every request has
// ended. The error wraps ErrDevice if the device failed, and is Fail's error after Fail.
func (e *Engine) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e.startRoller()
	e.startHostTier()
	err := e.loop()
	if err != nil {
		err = errors.Join(ErrDevice, err)
	} else {
		err = e.failure()
	}
	reason := err
	if err == nil {
		reason = ErrShutdown
	}
	e.finishAll(reason)
	return errors.Join(err, e.close(err))
}

// failure returns the error that was given to Fail, or nil.
func (e *Engine) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// startRoller starts the roller's goroutine unless NoRoller is set. close ends it.
func (e *Engine) startRoller() {
	if e.opts.NoRoller {
		return
	}
	e.roller, e.rolling = graphs.NewRoller(e.pool, e.dev), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: a thread that saw a device loss makes no other call
		err := e.roller.Run()
		if errors.Is(err, device.ErrSticky) {
			e.markLost(err)
		}
		e.rolling <- err
	}()
}

// markLost wakes an idle engine after a device loss.
func (e *Engine) markLost(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = err
	e.wakeup.signal()
}

// isLost reports whether the roller or the pinning found the device lost.
func (e *Engine) isLost() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost != nil
}

// loop applies commands and makes steps until the engine stops or the device fails.
func (e *Engine) loop() error {
	for {
		e.awaitMasks(e.awaited.patience())
		e.awaitTurn()
		stop, err := e.obey()
		if err == nil && !stop && e.gather() {
			stop, err = e.obey()
		}
		if err != nil || stop {
			return err
		}
		if err := e.iterate(); err != nil {
			return err
		}
	}
}

// obey applies the commands that have come and ends copies that are done. It reports whether the engine is to stop.
func (e *Engine) obey() (stop bool, err error) {
	commands, stop, err := e.takeCommands()
	if err = e.apply(commands, err); err != nil {
		return stop, err
	}
	return stop, e.finishCopies()
}

// finishCopies ends the copies that are done. After a failure it asks the device nothing more, since it may be lost.
func (e *Engine) finishCopies() error {
	for _, part := range []func() error{e.finishMoves, e.finishTransfers, e.advanceWrites} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// iterate forms and enqueues steps until enough are in flight, waits for the oldest, and hands out its tokens
// while the next one runs. With no step in flight it waits for work instead.
func (e *Engine) iterate() error {
	if err := e.formAndEnqueue(); err != nil {
		return err
	}
	if err := e.beginTransfers(); err != nil {
		return err
	}
	if err := e.enqueueHeartbeat(); err != nil {
		return err
	}
	if err := e.enqueueReread(); err != nil {
		return err
	}
	if len(e.inFlight) == 0 {
		e.resumed = time.Time{}
		e.pool.Maintain(e.next, false)
		e.publish()
		return e.waitForWork()
	}
	if e.early() > 0 {
		return nil // loop waits
	}
	step, err := e.completeOldest()
	if err != nil {
		return err
	}
	return e.handOut(step)
}

// takeCommands empties the inbox. It also returns whether the engine is to stop, and the error of a device that
// the roller found lost.
func (e *Engine) takeCommands() ([]command, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.inbox
	e.inbox, e.maintain = nil, false
	return c, e.stopping, e.lost
}

// apply executes commands. failed is the device's failure so far, or nil; the result includes the commands' own.
// After a failure no page is moved, but submitted requests are still taken in, so that they end with the others.
func (e *Engine) apply(commands []command, failed error) error {
	for _, c := range commands {
		s := e.sequences[c.handle]
		switch {
		case c.kind == addSlab:
			e.addSlab(c)
		case c.kind == submit:
			e.sequences[c.handle] = c.sequence
			e.askMask(c.sequence, nil) // it is made while the request waits, or its prompt is computed
			e.add(c.sequence)
		case c.kind == useStore && failed == nil:
			failed = e.useStore(c.store)
		case c.kind == pagesRead:
			e.finishRead(c.read)
		case c.kind == pageWritten:
			e.finishWrite(c)
		case c.kind == flush:
			e.files.flushes = append(e.files.flushes, c.written)
		case c.kind == cached:
			e.answerLater(c.question)
		case s == nil: // it has finished
		case c.kind == maskMade:
			e.takeMask(s, c.index, c.mask)
		case c.kind == maskLate:
			e.endLate(s)
		case c.kind == cancel:
			e.end(s, protocol.FinishCancelled, nil)
		case c.kind == relocate && failed == nil:
			failed = e.relocate(&s.scheduled, c.page)
		}
	}
	return failed
}

// formAndEnqueue forms steps and enqueues them until as many are in flight as may be, it is too early for the next one,
// or no sequence has work.
func (e *Engine) formAndEnqueue() error {
	for len(e.inFlight) < e.ahead() && e.early() <= 0 {
		b := e.sched.Next()
		e.noteJoined(e.sched.Joined())
		if b == nil {
			return nil
		}
		if err := e.enqueue(b); err != nil {
			return err
		}
	}
	return nil
}

// enqueue writes a step's descriptor and launches its pass. A step formed before a move of pages gets its block
// table entries anew, and a step that names a moving page waits on the device for the copy.
func (e *Engine) enqueue(b *scheduler.Batch) error {
	if e.sched.Stale(b) {
		e.sched.Rebuild(b)
	}
	if e.sched.WaitsForMove(b) {
		for _, m := range e.moves {
			if err := e.stream.Wait(m.done); err != nil {
				return err
			}
		}
	}
	if err := e.restoreSlots(b); err != nil {
		return err
	}
	e.writeMasks(b.Masked)
	if err := e.memory.Write(&b.Step); err != nil {
		return err
	}
	step := stepInFlight{batch: b, plan: e.pool.Acquire(e.stepKey(b)), enqueued: time.Now()}
	if err := e.pool.Launch(e.stream, step.plan, b.Step.Number); err != nil {
		return err
	}
	e.inFlight = append(e.inFlight, step)
	e.next = b.Step.Number + 1
	return e.stream.Record(e.events[b.Step.Number%depth])
}

// restoreSlots sets the slots of sequences that go on from pages of other prompts. The stream orders it before the
// step's pass, and after the passes that compute those pages.
func (e *Engine) restoreSlots(b *scheduler.Batch) error {
	if len(b.Restored) == 0 {
		return nil
	}
	e.restores = e.restores[:0]
	for _, r := range b.Restored {
		e.restores = append(e.restores, r.State())
		e.giveDrafts(r.Sequence())
	}
	return e.memory.Restore(e.stream, b.Step.Number, e.restores)
}

// key returns the graph key of a step's shape.
func key(b *scheduler.Batch) graphs.Key {
	switch {
	case b.Generated > 0:
		return graphs.Mixed(b.Generated, b.Prompts())
	case b.Prefill && len(b.Step.Samples) > 1:
		return graphs.Prefill(b.Prompts()).OfSeveral()
	case b.Prefill:
		return graphs.Prefill(b.Prompts())
	case b.Queries > 1:
		return graphs.VerifyStep(len(b.Step.Rows)/b.Queries, b.Queries)
	}
	return graphs.Decode(max(1, len(b.Step.Rows))) // a heartbeat's step has no rows
}

// completeOldest waits for the oldest step in flight and takes it off the list.
func (e *Engine) completeOldest() (stepInFlight, error) {
	step := e.inFlight[0]
	if !e.resumed.IsZero() {
		e.worked += time.Since(e.resumed) - e.idle
	}
	end, err := e.awaitEnd(step)
	if err != nil {
		return step, err
	}
	step.took, step.vague = e.noteStep(step, end), e.unsure >= betweenGuesses-1
	if len(step.batch.Served) > 0 { // steps of heartbeats and rereads serve no request
		e.coming.stepEnded()
	}
	copy(e.inFlight, e.inFlight[1:])
	e.inFlight = e.inFlight[:len(e.inFlight)-1]
	return step, nil
}

// handOut delivers a completed step's tokens, frees the pages and slots that waited for the step, and updates
// graphs and statistics.
func (e *Engine) handOut(step stepInFlight) error {
	e.countStep(step)
	e.callHeartbeats()
	e.timeStep(step)
	if err := e.deliver(step.batch); err != nil {
		return err
	}
	number := step.batch.Step.Number
	e.sched.Complete(number)
	e.pool.Maintain(number, true)
	e.publish()
	return nil
}

// deliver reads the step's records and gives each token to its sequence. Records of sequences that have left are
// skipped. A record of another step, slot or generation is a failure of the device.
func (e *Engine) deliver(b *scheduler.Batch) error {
	now := time.Now()
	e.awaited.stepEnded(now)
	for i, q := range b.Sampled {
		if !q.Running() {
			continue
		}
		if err := e.deliverTo(q, b, i, now); err != nil {
			return err
		}
	}
	return nil
}

// deliverTo gives q, the i-th of b's sampled sequences, its results: one, or in a verify step as many as its first
// record says. Results after its end are dropped.
func (e *Engine) deliverTo(q *scheduler.Sequence, b *scheduler.Batch, i int, now time.Time) error {
	first, s := i*b.Queries, q.Owner.(*sequence)
	if err := e.readRecord(q, b, first); err != nil {
		return err
	}
	if s.request.Vector != nil {
		e.vector(s, b.Step.Number, i, now)
		return nil
	}
	count := int(e.result.Count)
	if b.Queries > 1 {
		if count < 1 || count > 1+b.Drafts[i] {
			return fmt.Errorf("%w: %d results of %d drafts", errWrongRecord, count, b.Drafts[i])
		}
		e.countDrafts(s, b.Drafts[i], count-1)
	}
	last := first + count - 1
	if err := e.askAfter(q, b, first, last); err != nil {
		return err
	}
	e.token(s, &e.result, now, first < last)
	for row := first + 1; row <= last && q.Running(); row++ {
		if err := e.readRecord(q, b, row); err != nil {
			return err
		}
		e.token(s, &e.result, now, row < last)
	}
	return nil
}

// readRecord reads a record of q into e.result.
func (e *Engine) readRecord(q *scheduler.Sequence, b *scheduler.Batch, at int) error {
	r := &e.result
	e.memory.Record(b.Step.Number, at, r)
	slot, generation := q.Slot()
	if r.Step != b.Step.Number || r.Slot != slot || r.Generation != generation {
		return fmt.Errorf("%w: expected step %d, slot %d, generation %d; found step %d, slot %d, generation %d",
			errWrongRecord, b.Step.Number, slot, generation, r.Step, r.Slot, r.Generation)
	}
	return nil
}

// finishAll refuses further requests and ends every request that there is with err.
func (e *Engine) finishAll(err error) {
	e.Stop()
	commands, _, _ := e.takeCommands()
	for _, c := range commands {
		switch c.kind {
		case submit:
			e.sequences[c.handle] = c.sequence
		case cached:
			e.answer(c.question)
		case flush:
			close(c.written)
		default:
			e.takeBack(c)
		}
	}
	e.answerDrops()
	e.files.endFlushes()
	for _, s := range e.sequences {
		e.end(s, "", err)
	}
}
