package server

import "reel/protocol"

// SetLimits bounds connections, and the requests of each, from now on; 0 is the
// protocol's own bound. What is beyond them already goes on to its end. Clients
// that say hello later hear of them.
func (s *Server) SetLimits(connections, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds.connections, s.bounds.requests = orElse(connections, protocol.MaxConnections), orElse(requests, protocol.MaxRequests)
	if s.phase.model != nil {
		m := *s.phase.model // connections hold on to the old one
		m.Limits = s.limits(&m)
		s.phase.model = &m
	}
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

func (s *Server) maxRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bounds.requests
}
