package server

import (
	"errors"
	"net"
	"os"
	"time"

	"reel.internal/reel/protocol"
)

const (
	minAcceptPause = 5 * time.Millisecond // after a failed accept; doubled for each further one
	maxAcceptPause = time.Second
)

// Listen binds the socket, unless one was inherited. From then on clients can connect.
// Errors are those of [unixsocket.Listen].
func (s *Server) Listen() error {
	l, err := s.open()
	if err != nil {
		return err
	}
	for _, o := range s.outboxes {
		if err := o.open(); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	s.listener, s.accept = l, l.AcceptUnix
	s.opts.Logger.Info().Str("socket", l.Path()).Msg("listening")
	return nil
}

// Serve accepts connections until Drain, and returns after Close. Call Listen first.
func (s *Server) Serve() error {
	for pause := time.Duration(0); ; {
		sock, err := s.accept()
		switch {
		case err == nil:
			s.start(sock)
			pause = 0
		case errors.Is(err, net.ErrClosed):
			<-s.closed
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.rest()
		default: // out of descriptors, for example, until other connections end
			pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
			s.opts.Logger.Warn().Err(err).Dur("wait", pause).Msg("cannot accept a connection")
			time.Sleep(pause)
		}
	}
}

// start serves a connection on a goroutine of its own, or rejects it.
func (s *Server) start(sock *net.UnixConn) {
	p, err := s.identify(sock)
	if err != nil {
		s.opts.Logger.Debug().Err(err).Msg("peer is unknown")
		_ = sock.Close()
		return
	}
	c, e := s.add(sock, p)
	if e != nil {
		s.opts.Logger.Warn().Uint32("peer_uid", p.uid).Str("code", e.Code).Msg("connection rejected")
		s.reject(sock, e)
		return
	}
	s.opts.Observer.Connected()
	go c.serve()
}

func (s *Server) reject(sock *net.UnixConn, e *protocol.Error) {
	s.opts.Observer.Error(e.Code)
	frame, _ := protocol.AppendFrame(nil, e)
	_ = sock.SetWriteDeadline(time.Now().Add(s.bounds.rejectTimeout))
	_, _ = sock.Write(frame)
	_ = sock.Close()
}

// add returns a new connection of the user, if the bounds allow one.
func (s *Server) add(sock *net.UnixConn, p peer) (*conn, *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase.state == protocol.StateDraining {
		return nil, errDraining()
	}
	if n := s.users[p.uid]; !s.bounds.mayConnect(n, len(s.conns)) {
		return nil, protocol.Errorf(protocol.CodeTooManyConnections, "close idle connections or try again in a moment",
			"%d connections of user %d are open, %d in all", n, p.uid, len(s.conns))
	}
	s.lastNumber++
	s.users[p.uid]++
	c := newConn(s, sock, p, s.lastNumber)
	s.conns[c] = struct{}{}
	return c, nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.users[c.peer.uid]--; s.users[c.peer.uid] == 0 {
		delete(s.users, c.peer.uid)
	}
}

// connections lists the connections; s.mu is held.
func (s *Server) connections() []*conn {
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}
