// Package server accepts connections on a Unix socket, speaks package protocol, passes
// requests to an engine and streams the tokens back. It enforces every bound on a client's
// requests and on a client that does not read or finish its frames, so that no client
// harms another.
package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/unixsocket"
	"reel.internal/reel/protocol"
)

// Options configure a [Server].
type Options struct {
	Socket  string // path
	Version string // the program's, for status
	Logger  zerolog.Logger
	// QuietRequests logs served and refused requests at debug instead of info, for a log on
	// a terminal, where an answer may be printed. Failed requests stay at info.
	QuietRequests bool
	// Inherited is a listening socket from a service manager, used instead of a new
	// one at Socket; nil: none.
	Inherited *net.UnixListener
	// Lock owns the path Socket; the caller releases it. nil: the server owns the path
	// while it listens.
	Lock *unixsocket.Lock
	// Wakes means that the next connection starts the generator again after its end, so that it may sleep. Then
	// SleepAsks must be served while Serve runs.
	Wakes bool
	// AllowSleep are the uids that may have the generator sleep, besides its own and root.
	AllowSleep []uint32
	// Observer counts requests and errors, for metrics; it may be nil.
	Observer Observer
}

// requestLevel returns the level of the lines about requests that did not fail.
func (o *Options) requestLevel() zerolog.Level {
	if o.QuietRequests {
		return zerolog.DebugLevel
	}
	return zerolog.InfoLevel
}

// Server serves one model on one socket. Its life: [New], [Server.Listen], [Server.Serve]
// on a goroutine of its own, [Server.SetProgress], [Server.SetReady], [Server.Drain],
// [Server.Close].
type Server struct {
	opts        Options
	bounds      bounds
	frameBudget *frameBudget
	started     time.Time
	listener    *unixsocket.Listener
	accept      func() (*net.UnixConn, error)
	identify    func(*net.UnixConn) (peer, error)
	texts       textQueue
	renders     *fairSemaphore // permits to render chat templates
	compiles    *fairSemaphore // permits to compile formats
	counts      counts
	activity    activity
	outboxes    []*outbox
	rereads     *rereader
	closing     context.Context         // ends with engine.ErrShutdown when Close begins
	beginClose  context.CancelCauseFunc // of closing
	closed      chan struct{}           // closed by Close
	rested      chan struct{}           // Serve accepts no connection until resumed
	resumed     chan struct{}
	asks        chan SleepAsk

	mu         sync.Mutex
	phase      phase
	conns      map[*conn]struct{}
	users      map[uint32]int // connections by user
	lastNumber uint64         // of a connection
	running    atomic.Int32   // requests; written with mu held
	idle       chan struct{}  // closed while no request runs
}

// New returns a server in the loading state that does not listen yet.
func New(opts Options) *Server { return newServer(opts, defaultBounds()) }

func newServer(opts Options, b bounds) *Server {
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	idle := make(chan struct{})
	close(idle)
	closing, beginClose := context.WithCancelCause(context.Background())
	return &Server{
		opts: opts, bounds: b, started: time.Now(),
		frameBudget: newFrameBudget(b), outboxes: newOutboxes(),
		texts: newTextQueue(b), renders: newFairSemaphore(b.renders, b.userRenders),
		compiles: newFairSemaphore(b.compiles, b.userCompiles), rereads: newRereader(),
		closing: closing, beginClose: beginClose, closed: make(chan struct{}),
		rested: make(chan struct{}), resumed: make(chan struct{}), asks: make(chan SleepAsk),
		phase: phase{state: protocol.StateLoading},
		conns: map[*conn]struct{}{},
		users: map[uint32]int{},
		idle:  idle,

		identify: peerOf,
	}
}

// beginRequest counts a running request and returns the model that serves it, or the
// reason why the server takes none.
func (s *Server) beginRequest() (*Model, *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	model, e := s.phase.serving()
	if e != nil {
		return nil, e
	}
	s.activity.begin()
	if s.running.Add(1) == 1 {
		s.idle = make(chan struct{})
	}
	return model, nil
}

// endRequest stops counting a request that was refused, or whose last frame is queued.
func (s *Server) endRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity.end()
	if s.running.Add(-1) == 0 {
		close(s.idle)
	}
}

// Drain stops taking connections and requests. It waits until the running requests have
// ended, or until ctx ends; then it returns ctx's error.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.phase.state != protocol.StateFailed {
		s.phase.state = protocol.StateDraining
	}
	idle := s.idle
	s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	select { // both may be true; then every request has ended
	case <-idle:
		return nil
	default:
		return ctx.Err()
	}
}

// Close drains, sends the unsent frames and closes every connection. If ctx ends first, it
// closes the connections at once and returns ctx's error. The caller must stop the
// engine, before Close or at the same time, so that its requests end.
func (s *Server) Close(ctx context.Context) error {
	s.beginClose(engine.ErrShutdown)
	err := s.Drain(ctx)
	s.mu.Lock()
	conns := s.connections()
	s.mu.Unlock()
	for _, c := range conns {
		c.hangUp()
	}
	for _, c := range conns {
		select {
		case <-c.closed:
		case <-ctx.Done():
			_ = c.sock.Close()
			err = ctx.Err()
		}
	}
	for _, o := range s.outboxes {
		o.close()
	}
	close(s.closed)
	return err
}
