package engine

import "time"

// slowStep is the time of a decode step from which a sequence alone has one step in flight.
const slowStep = 10 * time.Millisecond

// ahead returns how many steps may be in flight. A second one hides the time of the engine's thread, some hundredths of a
// millisecond. But the host learns of an end of sequence after it has enqueued the next step, and a prompt that comes
// then waits for a row that nobody wants: with slow steps and no other sequence, that costs more than it hides.
func (e *Engine) ahead() int {
	if e.pace >= slowStep && e.sched.Running() <= 1 {
		return 1
	}
	return depth
}

// noteStep notes when a step ended, and returns how long it ran.
func (e *Engine) noteStep(step stepInFlight, end time.Time) time.Duration {
	took := end.Sub(e.begun(step))
	if b := step.batch; !b.Prefill && len(b.Served) > 0 {
		e.pace = took
	}
	e.ended, e.resumed, e.idle = end, time.Now(), 0
	return took
}

// begun returns when a step began: when it was enqueued, or when the step before it ended.
func (e *Engine) begun(step stepInFlight) time.Time {
	if e.ended.After(step.enqueued) {
		return e.ended
	}
	return step.enqueued
}
