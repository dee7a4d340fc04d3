package engine

// Pulse has done called once a step has completed from now on, which shows that
// the engine and its device go on. An idle engine runs a step that serves nobody
// for it. done is called on the engine's thread and must not block; where the
// engine ends or hangs before, it is not called. Run need not have begun.
func (e *Engine) Pulse(done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pulses = append(e.pulses, done)
	e.bell.ring()
}

// beat enqueues a step of padding where somebody waits for a step and none would
// come by itself.
func (e *Engine) beat() error {
	e.mu.Lock()
	asked := len(e.pulses) > 0
	e.mu.Unlock()
	if !asked || len(e.flights) > 0 {
		return nil
	}
	return e.enqueue(e.sched.Idle())
}

// beaten tells those who wait that a step has completed.
func (e *Engine) beaten() {
	e.mu.Lock()
	pulses := e.pulses
	e.pulses = nil
	e.mu.Unlock()
	for _, done := range pulses {
		done()
	}
}
