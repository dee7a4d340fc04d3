package server

import "reel.internal/reel/protocol"

// SetLimits changes the bounds on a user's connections and on a connection's requests; 0
// is the protocol's bound. Connections and requests beyond the new bounds continue.
// Clients that say hello later are told the new limits.
func (s *Server) SetLimits(connections, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds.connections = orDefault(connections, protocol.MaxConnections)
	s.bounds.requests = orDefault(requests, protocol.MaxRequests)
	s.change(func(m *Model) { m.Limits = s.limits(m) })
}

// change changes a copy of the served model, which takes its place: connections and requests keep the old one. It
// reports false, and does nothing, if no model is served yet. s.mu is held.
func (s *Server) change(edit func(*Model)) bool {
	if s.phase.model == nil {
		return false
	}
	m := *s.phase.model
	edit(&m)
	s.phase.model = &m
	return true
}

// SetChat changes the chat template for further requests, and the sampling defaults of conversations; nil: there is
// none. It reports false, and does nothing, if no model is served yet.
func (s *Server) SetChat(c Chat, defaults *protocol.Sampling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change(func(m *Model) { m.Chat, m.ChatDefaults, m.ChatFailure = c, defaults, "" })
}

func orDefault(n, byDefault int) int {
	if n == 0 {
		return byDefault
	}
	return n
}

// limits adds the server's limits to the model's; s.mu is held.
func (s *Server) limits(m *Model) protocol.Limits {
	l := m.Limits
	l.PromptBytes = l.Context * m.Tokenizer.MaxTokenBytes()
	l.Frame = protocol.MaxFrame
	l.Requests = s.bounds.requests
	l.Connections = s.bounds.connections
	l.Queue = orDefault(l.Queue, protocol.MaxQueue)
	return l
}

func (s *Server) maxRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bounds.requests
}
