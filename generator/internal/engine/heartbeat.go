package engine

// Heartbeat calls done after the next step completes, which proves to a watchdog that the engine and its device
// make progress. An idle engine runs a step of padding for it. done runs on the engine's thread and must not
// block. If the engine ends or hangs first, done is never called. Heartbeat may be called before Run.
func (e *Engine) Heartbeat(done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heartbeats = append(e.heartbeats, done)
	e.wakeup.signal()
}

// enqueueHeartbeat enqueues a step of padding if a heartbeat is wanted and no step is in flight.
func (e *Engine) enqueueHeartbeat() error {
	e.mu.Lock()
	wanted := len(e.heartbeats) > 0
	e.mu.Unlock()
	if !wanted || len(e.inFlight) > 0 {
		return nil
	}
	return e.enqueue(e.sched.Idle())
}

// callHeartbeats calls the functions that wait for a completed step.
func (e *Engine) callHeartbeats() {
	e.mu.Lock()
	waiting := e.heartbeats
	e.heartbeats = nil
	e.mu.Unlock()
	for _, done := range waiting {
		done()
	}
}
