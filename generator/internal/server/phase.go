package server

import (
	"fmt"
	"math"

	"reel.internal/reel/protocol"
)

// phase is the state of a server's life: loading, ready, draining or failed.
type phase struct {
	state    string  // protocol.State…
	progress float64 // of loading, 0 to 1
	loading  string  // the part of the model that is being loaded
	waitsFor string  // the device whose memory other programs hold, while the start waits for it
	failure  *protocol.Error
	model    *Model // set when ready; kept while draining
}

// SetProgress sets the progress of loading, 0 to 1, and the part of the model that is
// being loaded. Clients that say hello are told.
func (s *Server) SetProgress(progress float64, loading string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase.progress, s.phase.loading = progress, loading
}

// SetWaiting sets the device whose memory the start waits for while other programs hold it; empty: it does not wait.
// Clients that say hello are told.
func (s *Server) SetWaiting(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase.waitsFor = device
}

// SetReady starts to serve m. It does nothing if the server drains or has failed.
func (s *Server) SetReady(m Model) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Limits = s.limits(&m)
	if s.phase.state == protocol.StateLoading {
		s.phase = phase{state: protocol.StateReady, progress: 1, model: &m}
		s.activity.begin()
		s.activity.end()
	}
}

// Fail tells every client, now or at its hello, why the generator cannot serve, and for which device a start has waited
// in vain. Running requests continue.
func (s *Server) Fail(err error) {
	e := asError(err)
	s.mu.Lock()
	if e.Code == protocol.CodeGPUBusy {
		e.WaitsFor = s.phase.waitsFor
	}
	s.phase.state, s.phase.failure = protocol.StateFailed, e
	conns := s.connections()
	s.mu.Unlock()
	for _, c := range conns {
		c.send(e)
	}
}

// serving returns the model if requests can be served, otherwise the reason.
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
		return nil, errDraining()
	case protocol.StateFailed:
		return nil, p.failure
	}
	e := protocol.Errorf(protocol.CodeLoading, "say hello again in a moment", "%s", p.describe())
	progress := p.progress
	e.Progress, e.WaitsFor = &progress, p.waitsFor
	return nil, e
}

// doing returns the part of the model that is being loaded, or "".
func (p *phase) doing() string {
	if p.state != protocol.StateLoading {
		return ""
	}
	return p.loading
}

// failed returns the failure, or nil.
func (p *phase) failed() *protocol.Failure {
	if p.failure == nil {
		return nil
	}
	return &protocol.Failure{Code: p.failure.Code, Message: p.failure.Message, Hint: p.failure.Hint}
}

func (p *phase) describe() string {
	percent := math.Round(100 * p.progress)
	if p.loading == "" {
		return fmt.Sprintf("the model is being loaded: %.0f%%", percent)
	}
	return fmt.Sprintf("the model is being loaded: %s, %.0f%%", p.loading, percent)
}
