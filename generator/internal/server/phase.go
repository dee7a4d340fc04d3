package server

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"reel/generator/internal/engine"
	"reel/protocol"
)

// phase is where a server is in its life: loading, ready, draining or failed.
type phase struct {
	state    string  // protocol.State…
	progress float64 // of loading, 0 to 1
	what     string  // is being loaded
	failure  *protocol.Error
	model    *Model // once ready, also while draining
}

// SetProgress tells clients that say hello how far loading is, 0 to 1, and what
// is being done.
func (s *Server) SetProgress(progress float64, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase.progress, s.phase.what = progress, what
}

// SetReady begins to serve m. It does nothing once the server drains or has failed.
func (s *Server) SetReady(m Model) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Limits = s.limits(&m)
	if s.phase.state == protocol.StateLoading {
		s.phase = phase{state: protocol.StateReady, progress: 1, model: &m}
	}
}

// Fail tells every client why the generator cannot serve, those that are
// connected at once. What they had running is not ended by it.
func (s *Server) Fail(err error) {
	e := asError(err)
	s.mu.Lock()
	s.phase.state, s.phase.failure = protocol.StateFailed, e
	conns := s.connections()
	s.mu.Unlock()
	for _, c := range conns {
		c.send(e)
	}
}

// asError is err as a client sees it.
func asError(err error) *protocol.Error {
	var e *protocol.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, engine.ErrShutdown):
		return protocol.Errorf(protocol.CodeShutdown, "send it again once the generator is back", "the generator stopped before the request finished")
	case errors.Is(err, engine.ErrDraining):
		return draining()
	case errors.Is(err, engine.ErrBusy):
		return protocol.Errorf(protocol.CodeBusy, "try again in a moment", "the generator's queue is full")
	case errors.Is(err, engine.ErrDevice):
		return protocol.Errorf(protocol.CodeDeviceFailed, "repeat the request once the generator is back", "the device failed; the generator ends")
	case errors.Is(err, engine.ErrNumeric):
		return protocol.Errorf(protocol.CodeInternal,
			"suspect the model's weights: try another copy of its checkpoint, or another model", "%v", err)
	case errors.Is(err, engine.ErrTooLong):
		return protocol.Errorf(protocol.CodePromptTooLong, "shorten the prompt", "the prompt does not fit the context")
	}
	return protocol.Errorf(protocol.CodeInternal, "see the generator's log", "%v", err)
}

func draining() *protocol.Error {
	return protocol.Errorf(protocol.CodeDraining, "connect again in a moment", "the generator is stopping and takes no new requests")
}

// serving is the model where requests can be served, else why not.
func (s *Server) serving() (*Model, *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase.serving()
}

func (p *phase) serving() (*Model, *protocol.Error) {
	switch p.state {
	case protocol.StateReady:
		return p.model, nil
	case protocol.StateDraining:
		return nil, draining()
	case protocol.StateFailed:
		return nil, p.failure
	}
	e := protocol.Errorf(protocol.CodeLoading, "say hello again in a moment", "%s", p.describe())
	progress := p.progress
	e.Progress = &progress
	return nil, e
}

// doing is what loading does.
func (p *phase) doing() string {
	if p.state != protocol.StateLoading {
		return ""
	}
	return p.what
}

// why is the failure, where there is one.
func (p *phase) why() *protocol.Failure {
	if p.failure == nil {
		return nil
	}
	return &protocol.Failure{Code: p.failure.Code, Message: p.failure.Message, Hint: p.failure.Hint}
}

func (p *phase) describe() string {
	percent := math.Round(100 * p.progress)
	if p.what == "" {
		return fmt.Sprintf("the model is being loaded: %.0f%%", percent)
	}
	return fmt.Sprintf("the model is being loaded: %s, %.0f%%", p.what, percent)
}

// Status is a snapshot of the server and its engine.
func (s *Server) Status() *protocol.Status {
	s.mu.Lock()
	p, connections := s.phase, len(s.conns)
	s.mu.Unlock()
	st := &protocol.Status{
		State: p.state, Version: s.opts.Version, PID: os.Getpid(),
		Doing: p.doing(), Failure: p.why(),
		UptimeS: time.Since(s.started).Seconds(), Progress: p.progress, Connections: connections,
	}
	if p.model != nil {
		stats := p.model.Engine.Stats()
		st.Model, st.Device, st.Limits = p.model.Name, p.model.Device, p.model.Limits
		st.Requests, st.KV, st.Steps, st.Graphs = stats.Requests, stats.KV, stats.Steps, stats.Graphs
		st.Reserve = stats.Reserve
		st.Shape = p.model.Shape
		if p.model.Machine != nil {
			st.Machine = p.model.Machine()
		}
		st.Memory = p.model.memoryUse(stats, st.Machine)
	}
	s.counts.fill(&st.Requests)
	return st
}
