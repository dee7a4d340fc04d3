package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel/protocol"
)

// errSilent ends a connection that says nothing before it is welcomed.
var errSilent = errors.New("server: no frame came")

// frameHeader is the length in front of a frame.
const frameHeader = 4

// conn is one client's connection. Its reader decodes and admits requests, its
// writer empties the outbox, and each request has a goroutine of its own.
type conn struct {
	s     *Server
	sock  *net.UnixConn
	peer  peer
	log   zerolog.Logger
	out   *outbox
	over  atomic.Bool   // to be ended: the reader stops at the next frame
	ended chan struct{} // closed when over is set
	gone  chan struct{} // closed when nothing of the connection is left
	// number tells the connection from others of the server's life.
	number uint64

	// Of the reader alone.
	in     *bufio.Reader
	frames protocol.FrameReader
	room   claim  // of the frame in reception, then of its message
	model  *Model // once hello was answered by welcome
	timed  bool   // reading has a deadline
	// dispatching is true between a frame's decoding and the end of dispatch.
	dispatching bool

	mu       sync.Mutex
	requests map[uint64]*request
	streams  sync.WaitGroup // the requests' goroutines
}

func newConn(s *Server, sock *net.UnixConn, p peer, number uint64) *conn {
	c := &conn{
		s: s, sock: sock, peer: p, number: number,
		log:      s.opts.Logger.With().Uint64("conn", number).Uint32("peer_uid", p.uid).Int32("peer_pid", p.pid).Logger(),
		out:      newOutbox(sock, s.bounds.unsent, s.bounds.stall),
		ended:    make(chan struct{}),
		gone:     make(chan struct{}),
		in:       bufio.NewReader(sock),
		requests: map[uint64]*request{},
	}
	c.out.now = newSocketWriter(sock)
	c.frames = protocol.FrameReader{R: c.in, Budget: c}
	c.room = claim{of: s.reception, user: p.uid, interrupt: func() { _ = sock.SetReadDeadline(time.Unix(1, 0)) }}
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	c.log.Debug().Msg("connected")
	written := make(chan error, 1)
	go func() {
		err := c.out.write()
		c.hangUp()
		written <- err
	}()
	readErr := c.read()
	c.frames.Release()
	c.outlive(readErr)
	c.cancelAll()
	c.out.finish()
	writeErr := <-written
	_ = c.sock.Close()
	c.streams.Wait()
	c.s.leave(c)
	c.log.Debug().AnErr("read", readErr).AnErr("write", writeErr).Msg("disconnected")
	close(c.gone)
}

// hangUp makes the reader end, which ends the connection.
func (c *conn) hangUp() {
	if c.over.CompareAndSwap(false, true) {
		close(c.ended)
	}
	_ = c.sock.CloseRead()
}

// cancelAll ends every request. The reader calls it when it admits no more.
func (c *conn) cancelAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		r.cancel()
	}
}

// read takes frames until the client is gone or has to go.
func (c *conn) read() error {
	for !c.over.Load() {
		body, err := c.next()
		if e := c.overloaded(err); e != nil {
			if err = c.refuseFrame(e); err == nil {
				continue
			}
		}
		if err != nil {
			c.tell(err)
			return err
		}
		e := c.handle(body)
		if e != nil && e.Closes() {
			return e
		}
	}
	return nil
}

// next waits for a frame. A client that has been welcomed may be silent for
// ever, but a frame that has begun must come to its end.
func (c *conn) next() ([]byte, error) {
	var deadline time.Time
	if c.model == nil {
		deadline = time.Now().Add(c.s.bounds.silence)
	}
	c.readUntil(deadline)
	if _, err := c.in.Peek(1); err != nil {
		return nil, silence(err)
	}
	if !c.whole() {
		c.readUntil(time.Now().Add(c.s.bounds.frame))
	}
	return c.frames.Next()
}

// readUntil sets the end of patience; none is the zero time. It costs some µs, which a
// client's first token waits for: not where there was none before either.
func (c *conn) readUntil(deadline time.Time) {
	if deadline.IsZero() && !c.timed {
		return
	}
	c.timed = !deadline.IsZero()
	_ = c.sock.SetReadDeadline(deadline)
}

// whole tells whether a frame is there to its end.
func (c *conn) whole() bool {
	have := c.in.Buffered()
	if have < frameHeader {
		return false
	}
	header, _ := c.in.Peek(frameHeader)
	return int64(have-frameHeader) >= int64(binary.BigEndian.Uint32(header))
}

// silence is err, which came between two frames.
func silence(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return err
}

// tell says why the connection closes, where somebody may be left to hear it.
func (c *conn) tell(err error) {
	e := protocol.FrameError(err)
	switch {
	case errors.Is(err, errSilent):
		e = protocol.Errorf(protocol.CodeHelloRequired, "connect when there is something to ask", "no frame came for %v", c.s.bounds.silence)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e = protocol.Errorf(protocol.CodeBadFrame, "send whole frames", "a frame was not complete after %v", c.s.bounds.frame)
	}
	if e != nil {
		c.send(e)
	}
}

// handle answers one frame. It returns the error that it has sent.
func (c *conn) handle(body []byte) *protocol.Error {
	received := time.Now()
	if c.model != nil && mayGenerate(body) {
		c.model.Engine.Expect() // the engine gets up while this is decoded
	}
	msg, err := c.limits().DecodeRequest(body)
	c.dispatching = true
	c.room.decode()
	c.frames.Release() // its memory, not yet its room
	defer func() {
		c.dispatching = false
		c.room.release()
	}()
	var e *protocol.Error
	if err == nil {
		e = c.dispatch(msg, received)
	} else {
		e = asError(err)
		c.undecoded(e)
	}
	if e != nil {
		c.send(e)
	}
	return e
}

// mayGenerate guesses whether a body that is not decoded yet asks for a completion: most
// clients name its type first.
func mayGenerate(body []byte) bool {
	return bytes.Contains(body[:min(len(body), 24)], []byte(protocol.TypeGenerate))
}

// undecoded counts a request that was refused while it was decoded.
func (c *conn) undecoded(e *protocol.Error) {
	if e.ID != nil && (e.Code == protocol.CodeBadRequest || e.Code == protocol.CodePromptTooLong) {
		c.refused(*e.ID, e)
	}
}

// refused counts and logs a request of which nothing was taken.
func (c *conn) refused(id uint64, e *protocol.Error) {
	c.s.counts.refused.Add(1)
	c.log.Info().Uint64("req_id", id).Str("finish", e.Code).Msg("refused")
}

func (c *conn) dispatch(msg any, received time.Time) *protocol.Error {
	if m, ok := msg.(*protocol.Hello); ok {
		return c.hello(m)
	}
	if _, ok := msg.(*protocol.StatusRequest); ok {
		c.send(c.s.Status())
		return nil
	}
	if c.model == nil {
		return helloRequired(msg)
	}
	switch m := msg.(type) {
	case *protocol.Generate:
		return c.generate(m, received)
	case *protocol.Cancel:
		c.cancel(m.ID)
	case *protocol.Tokenize:
		return c.tokenize(m)
	}
	return nil
}

func helloRequired(msg any) *protocol.Error {
	e := protocol.Errorf(protocol.CodeHelloRequired, "send hello, and wait for welcome", "hello has not been answered by welcome")
	switch m := msg.(type) {
	case *protocol.Generate:
		return e.For(m.ID)
	case *protocol.Cancel:
		return e.For(m.ID)
	}
	return e
}

func (c *conn) hello(m *protocol.Hello) *protocol.Error {
	if m.Version != protocol.Version {
		return protocol.Errorf(protocol.CodeUnsupportedVersion, "use a client of the generator's release",
			"the client speaks protocol version %d, this generator %d", m.Version, protocol.Version)
	}
	model, e := c.s.serving()
	if e != nil {
		return e
	}
	c.model = model
	c.send(&protocol.Welcome{Version: protocol.Version, Model: model.Name, Limits: model.Limits, Chat: model.Chat != nil})
	return nil
}

func (c *conn) cancel(id uint64) {
	c.mu.Lock()
	r := c.requests[id]
	c.mu.Unlock()
	if r != nil {
		r.cancel()
	}
}

// limits are those that welcome stated; there are none before.
func (c *conn) limits() protocol.Limits {
	if c.model == nil {
		return protocol.Limits{}
	}
	return c.model.Limits
}

// tokenize answers with the tokens of a text, whose length was checked when it
// was decoded. A generator that drains still does: it takes nothing for it.
func (c *conn) tokenize(m *protocol.Tokenize) *protocol.Error {
	tokens, e := c.s.encode(m.Text, c.peer.uid, c.model.Tokenizer.Encode)
	if e != nil {
		return e
	}
	if len(tokens) > protocol.MaxElements {
		return protocol.Errorf(protocol.CodePromptTooLong, "tokenize it in parts", "the text has %d tokens: a list may have %d", len(tokens), protocol.MaxElements)
	}
	c.send(&protocol.Tokens{Tokens: tokens})
	return nil
}

// send queues one message.
func (c *conn) send(msg any) {
	if e, failed := msg.(*protocol.Error); failed {
		c.s.opts.Observer.Error(e.Code)
	}
	frame, err := protocol.AppendFrame(nil, msg)
	if err != nil {
		frame, _ = protocol.AppendFrame(nil, asError(err))
	}
	c.queue(frame)
}

// queue hands frames to the writer. A client that has fallen too far behind is
// cut: told so, in case it reads again, and ended.
func (c *conn) queue(frames []byte) {
	if !c.out.add(frames) {
		return
	}
	last, _ := protocol.AppendFrame(nil, protocol.Errorf(protocol.CodeSlowClient, "read as fast as tokens come",
		"more than %d bytes wait for the client to read them", c.s.bounds.unsent))
	c.log.Warn().Msg("cut: the client does not read")
	c.s.opts.Observer.Error(protocol.CodeSlowClient)
	c.out.cut(last)
	c.hangUp()
}
