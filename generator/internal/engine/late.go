package engine

import "time"

// With a gap, the second step in flight is formed shortly before the first one ends, if that can be told. What comes
// meanwhile gets its rows in that step and not in the one after: a prompt waits for one step instead of two, and the
// prompts of a burst come together.

const (
	// lead is how long before the end of the step in flight the next one is formed at the latest; a quarter of the step,
	// if that is longer, and so long before that a late wake-up makes it no later than half of lead. Forming and
	// enqueueing it takes a fifth of lead. While prompts have a long step, it is not a quarter: whoever comes then would
	// wait for the next one too.
	lead = time.Millisecond
	// leadPart is the part of a step.
	leadPart = 4
	// longEnough is the least length of a step, in leads, with which the next one is formed late. With a shorter one a
	// prompt would gain less than two leads, and others' next token is late if the engine's thread is held up for a lead,
	// as Go does now and then with a thread that has run for 10 ms.
	longEnough = 2.5
	// lookAfter is how long the engine waits before it looks if the step has ended already. That takes a call of the
	// driver, of about a microsecond.
	lookAfter = 200 * time.Microsecond
	// noticedLate is how long ago a step that has ended was last seen to run, or began, if its end is to count.
	noticedLate = time.Millisecond
	// betweenGuesses is how many steps after a guessed end the next one may be guessed at the earliest. So a step of each
	// kind is measured between two guesses, also where prefill and decode steps alternate.
	betweenGuesses = 4
)

// oversleeping is how late the machine wakes the engine's thread at most: on a virtual one that may be milliseconds, now
// and then. It fades by half in 700 steps.
type oversleeping time.Duration

// slept notes how long a wait took for which `asked` was to be waited.
func (o *oversleeping) slept(asked, took time.Duration) { *o = max(*o, oversleeping(took-asked)) }

// fade is called after each step. More than the step took is not kept: the next one cannot be formed any sooner.
func (o *oversleeping) fade(step time.Duration) {
	*o = min(*o, oversleeping(step))
	*o -= *o / 1024
}

// leastLead returns lead, or in tests another.
func (o Options) leastLead() time.Duration {
	if o.lead > 0 {
		return o.lead
	}
	return lead
}

// timeStep tells the scheduler and the policy of drafts how long a step took, before its records are read, if that was
// measured.
func (e *Engine) timeStep(step stepInFlight) {
	e.overslept.fade(step.took)
	if step.vague {
		e.sched.Passed(step.took)
		return
	}
	e.sched.Took(step.batch, step.took)
	e.timeDrafts(step, step.took)
}

// early returns how long it is too early to form the second step in flight; 0 or less: it is time.
func (e *Engine) early() time.Duration {
	if e.opts.Gap == 0 || len(e.inFlight) != 1 || e.ahead() == 1 || e.over == e.inFlight[0].batch.Step.Number {
		return 0
	}
	step := e.inFlight[0]
	takes := e.sched.Expected(step.batch)
	if float64(takes) < longEnough*float64(e.opts.leastLead()) {
		return 0
	}
	before := max(e.opts.leastLead(), time.Duration(e.overslept)+e.opts.leastLead()/2)
	if step.batch.Prompts() <= e.opts.Chunk {
		before = max(before, takes/leadPart)
	}
	if e.coming.more() { // a step that some of them miss costs more than one late wake-up
		before = min(before, takes/2)
	}
	left := takes - before
	if left <= 0 {
		return 0
	}
	return left - time.Since(e.begun(step))
}

// awaitTurn waits until it is time to form the next step. Again and again it looks if the step in flight has
// ended, earlier than expected: its tokens must not wait.
func (e *Engine) awaitTurn() {
	for left := e.early(); left > 0; left = e.early() {
		e.mu.Lock()
		if e.stopping || e.lost != nil {
			e.mu.Unlock()
			return
		}
		e.wakeup.sleeping = true
		e.mu.Unlock()
		slept, asked := time.Now(), min(left, lookAfter)
		e.wakeup.wait(asked)
		took := time.Since(slept)
		e.idle += took
		e.overslept.slept(asked, took)
		e.mu.Lock()
		e.wakeup.sleeping = false
		e.mu.Unlock()
		if left > lookAfter {
			e.look()
		}
	}
}

// look notes if the step in flight has ended, or its device has failed.
func (e *Engine) look() {
	number := e.inFlight[0].batch.Step.Number
	if done, err := e.events[number%depth].Done(); done || err != nil {
		e.over = number // completeOldest has the error
	} else {
		e.seen = time.Now()
	}
}

// awaitEnd waits for the end of the oldest step, and returns when that was. If the machine ran the engine's thread late,
// the step has ended some time ago, and counts as ended when it was expected to. That is a guess: neither its time nor
// that of the next step, which began meanwhile, is learned. Otherwise it would seem to have taken longer, and the next one
// much less time than it takes.
func (e *Engine) awaitEnd(step stepInFlight) (time.Time, error) {
	event := e.events[step.batch.Step.Number%depth]
	takes := e.sched.Expected(step.batch)
	e.unsure = max(0, e.unsure-1)
	var ended bool
	var err error
	if takes > 0 && e.unsure == 0 {
		ended, err = event.Done()
	}
	if err == nil && !ended {
		err = event.Synchronize()
	}
	now, begun := time.Now(), e.begun(step)
	running := begun
	if e.seen.After(running) {
		running = e.seen
	}
	if err != nil || !ended || now.Sub(running) <= noticedLate {
		return now, err
	}
	e.unsure = betweenGuesses
	return begun.Add(min(max(takes, running.Sub(begun)), now.Sub(begun))), nil
}
