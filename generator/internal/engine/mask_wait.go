package engine

import "time"

// awaited are the masks that were asked for after the last step. The engine waits for them a moment before it forms
// the next one: a sequence whose mask comes just too late gets its row a whole step later.
type awaited struct {
	// Guarded by mu; asked and round change on the engine's thread only.
	round uint64 // number of the wait; masks that come after it are not counted
	asked int
	made  int
	waits bool // the thread sleeps until all are made

	ended time.Time        // when the last step completed
	took  [2]time.Duration // by the last two steps
}

// The wait ends after a quarter of a step, since the step in flight must not end before the next one is enqueued, or
// after mostWait. Steps that are shorter than leastStep leave no time for it.
const (
	leastStep = 400 * time.Microsecond
	mostWait  = time.Millisecond
)

// stepEnded notes that a step has completed.
func (a *awaited) stepEnded(now time.Time) {
	a.took = [2]time.Duration{now.Sub(a.ended), a.took[0]}
	a.ended = now
}

// patience is how long after the last step's end masks are waited for.
func (a *awaited) patience() time.Duration {
	step := min(a.took[0], a.took[1])
	if step < leastStep {
		return 0
	}
	return min(step/4, mostWait)
}

// countAsked counts a mask that is being asked for, and returns the number of the wait for it.
func (e *Engine) countAsked() (round uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaited.asked++
	return e.awaited.round
}

// sendMask sends a mask that was asked for in a round. It wakes a thread that waits for masks with the last of them.
func (e *Engine) sendMask(round uint64, c command) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inbox = append(e.inbox, c)
	a := &e.awaited
	if a.round == round {
		a.made++
	}
	if !a.waits || a.made >= a.asked {
		e.wakeup.signal()
	}
}

// awaitMasks waits for the masks that were asked for after the last step, until most has passed since its end. Others
// lose nothing: the step that was enqueued for them runs meanwhile.
func (e *Engine) awaitMasks(most time.Duration) {
	a := &e.awaited
	if a.asked == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for end := a.ended.Add(most); a.made < a.asked && !e.stopping && e.lost == nil; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		a.waits, e.wakeup.sleeping = true, true
		e.mu.Unlock()
		e.wakeup.wait(left)
		e.mu.Lock()
		e.wakeup.sleeping = false
	}
	a.round++
	a.asked, a.made, a.waits = 0, 0, false
}
