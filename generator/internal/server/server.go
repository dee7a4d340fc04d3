// Package server is the generator's front door: it accepts connections on a
// Unix socket, speaks package protocol, hands requests to an engine and streams
// the tokens back. It holds every bound on what a client may ask or leave
// undone, so that no client harms another.
package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/unixsocket"
	"reel/protocol"
)

// Options say where and as what a Server serves.
type Options struct {
	Socket  string // path
	Version string // of the program, for status
	Logger  zerolog.Logger
	// Inherited is a socket that a service manager listens on for the server, in
	// place of one at the path Socket; nil where there is none.
	Inherited *net.UnixListener
	// Lock owns the path Socket, and the caller releases it; with nil the server
	// owns the path itself while it listens.
	Lock *unixsocket.Lock
	// Observer is told what becomes of requests; nil is nobody.
	Observer Observer
}

// Server serves one model on one socket. Its life: New, Listen, Serve on a
// goroutine of its own, SetProgress, SetReady, Drain, Close.
type Server struct {
	opts      Options
	bounds    bounds
	reception *reception // of frames
	started   time.Time
	listener  *unixsocket.Listener
	accept    func() (*net.UnixConn, error)
	identify  func(*net.UnixConn) (peer, error)
	texts     textQueue
	renders   *fairSemaphore // conversations whose prompts are being made
	counts    counts
	closed    chan struct{} // by Close

	mu       sync.Mutex
	phase    phase
	conns    map[*conn]struct{}
	users    map[uint32]int // connections of each
	lastConn uint64
	running  atomic.Int32  // requests; changes with mu held
	quiet    chan struct{} // closed while no request runs
}

// New makes a server that is loading and does not listen yet.
func New(opts Options) *Server { return newServer(opts, defaultBounds()) }

func newServer(opts Options, b bounds) *Server {
	if opts.Observer == nil {
		opts.Observer = nobody{}
	}
	quiet := make(chan struct{})
	close(quiet)
	return &Server{
		opts: opts, bounds: b, started: time.Now(),
		reception: newReception(b),
		texts:     newTextQueue(b), renders: newFairSemaphore(b.renders, b.userRenders),
		closed: make(chan struct{}),
		phase:  phase{state: protocol.StateLoading},
		conns:  map[*conn]struct{}{},
		users:  map[uint32]int{},
		quiet:  quiet,

		identify: peerOf,
	}
}

// Listen binds the socket, unless one was inherited; clients can connect from then on. Errors:
// those of [unixsocket.Listen].
func (s *Server) Listen() error {
	l, err := s.open()
	if err != nil {
		return err
	}
	s.listener, s.accept = l, l.AcceptUnix
	s.opts.Logger.Info().Str("socket", l.Path()).Msg("listening")
	return nil
}

// Serve takes connections until Drain, and returns after Close. Listen comes first.
func (s *Server) Serve() error {
	for wait := time.Duration(0); ; {
		sock, err := s.accept()
		switch {
		case err == nil:
			s.take(sock)
			wait = 0
		case errors.Is(err, net.ErrClosed):
			<-s.closed
			return nil
		default: // out of descriptors, say: others end, then it goes on
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.opts.Logger.Warn().Err(err).Dur("wait", wait).Msg("cannot accept a connection")
			time.Sleep(wait)
		}
	}
}

// take starts a connection, or turns it away.
func (s *Server) take(sock *net.UnixConn) {
	p, err := s.identify(sock)
	if err != nil {
		s.opts.Logger.Debug().Err(err).Msg("peer is unknown")
		_ = sock.Close()
		return
	}
	c, e := s.join(sock, p)
	if e != nil {
		s.opts.Logger.Warn().Uint32("peer_uid", p.uid).Str("code", e.Code).Msg("connection turned away")
		s.turnAway(sock, e)
		return
	}
	s.opts.Observer.Connected()
	go c.serve()
}

func (s *Server) turnAway(sock *net.UnixConn, e *protocol.Error) {
	s.opts.Observer.Error(e.Code)
	frame, _ := protocol.AppendFrame(nil, e)
	_ = sock.SetWriteDeadline(time.Now().Add(s.bounds.reject))
	_, _ = sock.Write(frame)
	_ = sock.Close()
}

// join adds a connection if mayConnect.
func (s *Server) join(sock *net.UnixConn, p peer) (*conn, *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase.state == protocol.StateDraining {
		return nil, draining()
	}
	if mine := s.users[p.uid]; !s.bounds.mayConnect(mine, len(s.conns)) {
		return nil, protocol.Errorf(protocol.CodeTooManyConnections, "close idle connections or try again in a moment",
			"%d connections of user %d are open, %d in all", mine, p.uid, len(s.conns))
	}
	s.lastConn++
	s.users[p.uid]++
	c := newConn(s, sock, p, s.lastConn)
	s.conns[c] = struct{}{}
	return c, nil
}

func (s *Server) leave(c *conn) {
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

// begin counts a request in and returns the model that serves it, unless the
// server has stopped taking requests.
func (s *Server) begin() (*Model, *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	model, e := s.phase.serving()
	if e != nil {
		return nil, e
	}
	if s.running.Add(1) == 1 {
		s.quiet = make(chan struct{})
	}
	return model, nil
}

// end counts a request out: it was refused, or its last frame is in the outbox.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.Add(-1) == 0 {
		close(s.quiet)
	}
}

// Drain takes no more connections and requests, and waits until what runs has
// finished or ctx ends; then it returns ctx's error.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.phase.state != protocol.StateFailed {
		s.phase.state = protocol.StateDraining
	}
	quiet := s.quiet
	s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
	}
	select { // Both may be true: then nothing was left undone.
	case <-quiet:
		return nil
	default:
		return ctx.Err()
	}
}

// Close drains, writes what is in the outboxes and closes every connection. It
// returns ctx's error where that ended the waiting; the connections are closed
// all the same. The engine must have ended its requests, or end them by then.
func (s *Server) Close(ctx context.Context) error {
	err := s.Drain(ctx)
	s.mu.Lock()
	conns := s.connections()
	s.mu.Unlock()
	for _, c := range conns {
		c.hangUp()
	}
	for _, c := range conns {
		select {
		case <-c.gone:
		case <-ctx.Done():
			_ = c.sock.Close()
			err = ctx.Err()
		}
	}
	close(s.closed)
	return err
}
