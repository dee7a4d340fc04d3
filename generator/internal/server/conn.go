package server

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/protocol"
)

// conn is one client's connection. Its reader (receive.go) decodes frames and handles
// messages (dispatch.go), its writer empties the write queue, and each request has a
// goroutine of its own (request.go).
type conn struct {
	server *Server
	sock   *net.UnixConn
	peer   peer
	number uint64 // 1 for the server's first connection
	since  time.Time
	asked  atomic.Bool // a frame other than hello came
	// asksSleep: the reader waits for the decision whether the generator sleeps.
	asksSleep atomic.Bool
	log       zerolog.Logger
	writes    *writeQueue
	outbox    *outbox
	listed    atomic.Int32 // its requests in the outbox

	hungUp atomic.Bool   // the reader stops at the next frame
	hangup chan struct{} // closed when hungUp is set
	closed chan struct{} // closed at the end of serve

	// Used by the reader only.
	in              *bufio.Reader
	frames          protocol.FrameReader
	reservation     reservation // of the frame in reception, then of its message
	model           *Model      // nil until hello was answered by welcome
	expects         Engine      // was told that this client's requests are being read; nil: none
	hasReadDeadline bool
	dispatching     bool // a decoded message is being handled

	mu       sync.Mutex
	requests map[uint64]running // by id
	streams  sync.WaitGroup     // the requests' goroutines
}

func newConn(s *Server, sock *net.UnixConn, p peer, number uint64) *conn {
	c := &conn{
		server: s, sock: sock, peer: p, number: number, since: time.Now(),
		log: s.opts.Logger.With().Uint64("conn", number).
			Uint32("peer_uid", p.uid).Int32("peer_pid", p.pid).Logger(),
		outbox:   s.outboxes[number%uint64(len(s.outboxes))],
		writes:   newWriteQueue(sock, s.bounds.unsent, s.bounds.stallTimeout),
		hangup:   make(chan struct{}),
		closed:   make(chan struct{}),
		requests: map[uint64]running{},
	}
	c.in = bufio.NewReader(newSocketReader(sock, c.endExpect))
	c.writes.inline = newSocketWriter(sock)
	c.frames = protocol.FrameReader{R: c.in, Budget: c}
	c.reservation = reservation{
		budget: s.frameBudget, user: p.uid,
		interrupt: func() { _ = sock.SetReadDeadline(time.Unix(1, 0)) },
	}
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	c.log.Debug().Msg("connected")
	written := make(chan error, 1)
	go func() {
		err := c.writes.run()
		c.hangUp()
		written <- err
	}()
	readErr := c.readFrames()
	c.endExpect()
	c.frames.Release()
	c.awaitRequests(readErr)
	c.cancelAll()
	c.writes.finish()
	writeErr := <-written
	_ = c.sock.Close()
	c.streams.Wait()
	c.server.remove(c)
	c.log.Debug().AnErr("read", readErr).AnErr("write", writeErr).Msg("disconnected")
	close(c.closed)
}

// running is a request that has not ended: a completion or an embedding.
type running interface{ cancel() }

// hangUp stops the reader, which ends the connection.
func (c *conn) hangUp() {
	if c.hungUp.CompareAndSwap(false, true) {
		close(c.hangup)
	}
	_ = c.sock.CloseRead()
}

// cancelAll cancels every request. The reader calls it when it admits no more.
func (c *conn) cancelAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		r.cancel()
	}
}

// send queues one message.
func (c *conn) send(msg any) {
	if e, failed := msg.(*protocol.Error); failed {
		c.server.opts.Observer.Error(e.Code)
	}
	frame, err := protocol.AppendFrame(nil, msg)
	if err != nil {
		frame, _ = protocol.AppendFrame(nil, asError(err))
	}
	c.queue(frame)
}

// queue queues frames. If the client has fallen too far behind, its connection ends: it
// gets an error instead of the unsent frames, in case it reads again.
func (c *conn) queue(frames []byte) {
	if !c.writes.add(frames) {
		return
	}
	last, _ := protocol.AppendFrame(nil, protocol.Errorf(protocol.CodeSlowClient, "read as fast as tokens come",
		"more than %d bytes wait for the client to read them", c.server.bounds.unsent))
	c.log.Warn().Msg("connection cut: the client does not read")
	c.server.opts.Observer.Error(protocol.CodeSlowClient)
	c.writes.cut(last)
	c.hangUp()
}
