package client

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

func TestLeavingTheLoopCancels(t *testing.T) {
	c, g := connect(t, fakegen.Script{Ending: fakegen.Hang})
	for _, err := range c.Generate(t.Context(), Request{Prompt: "one two"}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	sent := received[*protocol.Generate](t, g)
	if cancel := received[*protocol.Cancel](t, g); cancel.ID != sent.ID {
		t.Errorf("cancelled %d, not %d", cancel.ID, sent.ID)
	}
	if n := running(c); n != 0 {
		t.Errorf("%d requests still registered", n)
	}
}

func TestEndedRequestIsNotCancelled(t *testing.T) {
	c, g := connect(t, fakegen.Script{})
	if _, err := collect(t.Context(), c, Request{Prompt: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil { // A cancel would have been sent before it.
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	isCancel := func(m any) bool { _, ok := m.(*protocol.Cancel); return ok }
	if m, err := g.Wait(stop, isCancel); err == nil {
		t.Errorf("got %+v for a request that had ended", m)
	}
}

func running(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

func TestContextCancels(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Ending: fakegen.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done Done
	var last error
	for tok, err := range c.Generate(ctx, Request{Prompt: "one two", Done: &done}) {
		last = err
		if tok.Index == 1 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("ended with %v", last)
	}
	if done.FinishReason != protocol.FinishCancelled || running(c) != 0 {
		t.Errorf("done %+v, %d requests registered", done, running(c))
	}
}

func TestContextThatHasEnded(t *testing.T) {
	c, g := connect(t, fakegen.Script{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := collect(ctx, c, Request{Prompt: "one"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := collect(t.Context(), c, Request{Prompt: "two"}); err != nil {
		t.Error(err)
	}
	if m := received[*protocol.Generate](t, g); *m.Prompt != "two" {
		t.Errorf("sent %q although the context had ended", *m.Prompt)
	}
}

func TestContextEndsAMuteGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := connect(t, fakegen.Script{Ending: fakegen.Mute})
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begin := time.Now()
		var last error
		for _, err := range c.Generate(ctx, Request{Prompt: "one"}) {
			last = err
			cancel()
		}
		if !errors.Is(last, context.Canceled) || running(c) != 0 {
			t.Errorf("ended with %v, %d requests registered", last, running(c))
		}
		if took := time.Since(begin); took > cancelTime {
			t.Errorf("took %s", took)
		}
	})
}

func TestContextCancelsWhileTheLoopIsBlocked(t *testing.T) {
	c, g := connect(t, fakegen.Script{Ending: fakegen.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range c.Generate(ctx, Request{Prompt: "one"}) {
		if err != nil {
			break
		}
		cancel()
		received[*protocol.Cancel](t, g) // sent although this loop is blocked here
	}
}

// late is a context that calls run when a stream has found no message and is about to wait.
type late struct {
	context.Context
	run func()
}

func (l late) Done() <-chan struct{} {
	l.run()
	return nil
}

// TestStreamDeliversBeforeTheEnd: a message that came just before the connection was
// lost is still delivered.
func TestStreamDeliversBeforeTheEnd(t *testing.T) {
	for range 64 { // The stream may see the two events in either order.
		s, lost := newStream(new(atomic.Int64)), make(chan struct{})
		ctx := late{t.Context(), func() {
			s.push(&Done{})
			close(lost)
		}}
		if message, err := s.next(ctx, lost); message == nil || err != nil {
			t.Fatalf("got %v, %v", message, err)
		}
	}
}

func TestGeneratorThatReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := raw(t)
		defer c.Close()
		if _, err := collect(t.Context(), c, Request{Prompt: "one"}); !errors.Is(err, ErrConnectionLost) {
			t.Errorf("got %v", err)
		}
	})
}

func TestGeneratorThatAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go fakegen.New(fakegen.Script{Silent: true}).ServeConn(theirs)
		if _, err := greet(t.Context(), ours, false); !errors.Is(err, ErrNoGenerator) || !mayRetry(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestGeneratorsErrorEndsOnlyItsRequest(t *testing.T) {
	busy := protocol.Errorf(protocol.CodeBusy, "try again", "the queue is full")
	c, _ := connect(t, fakegen.Script{Ending: fakegen.Fail, Error: busy})
	for range 2 {
		text, err := collect(t.Context(), c, Request{Prompt: "one two"})
		var reported *Error
		right := errors.As(err, &reported) && reported.Code == protocol.CodeBusy && reported.Hint == "try again"
		if !right || text != "one two" {
			t.Fatalf("%q, %v", text, err)
		}
	}
}

// A generator that falls asleep says so and closes, perhaps while a question is being written.
func TestDrainingWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := raw(t)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Status(t.Context())
			failed <- err
		}()
		synctest.Wait() // until nobody reads the question
		sendRaw(theirs, protocol.Errorf(protocol.CodeDraining, "connect again", "it stops"))
		theirs.Close()
		var reported *Error
		if err := <-failed; !errors.As(err, &reported) || reported.Code != protocol.CodeDraining {
			t.Errorf("got %v", err)
		}
	})
}

func TestDropMidStream(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Ending: fakegen.Drop})
	text, err := collect(t.Context(), c, Request{Prompt: "one two"})
	if !errors.Is(err, ErrConnectionLost) || text != "one two" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := collect(t.Context(), c, Request{Prompt: "again"}); !errors.Is(err, ErrConnectionLost) {
		t.Errorf("afterwards: %v", err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrConnectionLost) {
		t.Errorf("status afterwards: %v", err)
	}
}

// raw returns a client and the other end of its connection.
func raw(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		if _, err := protocol.ReadFrame(theirs, 0, nil); err == nil {
			sendRaw(theirs, &protocol.Welcome{Version: 1})
		}
	}()
	c, err := greet(t.Context(), ours, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, theirs
}

func sendRaw(conn net.Conn, message any) {
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write(frame) // If the client has gone, the test fails elsewhere.
}

func TestGeneratorsLastErrorIsTheCause(t *testing.T) {
	c, generator := raw(t)
	go func() {
		_, _ = protocol.ReadFrame(generator, 0, nil)
		sendRaw(generator, protocol.Errorf(protocol.CodeSlowClient, "", "too slow"))
		generator.Close()
	}()
	_, err := collect(t.Context(), c, Request{Prompt: "one"})
	var reported *Error
	if !errors.Is(err, ErrConnectionLost) || !errors.As(err, &reported) || reported.Code != protocol.CodeSlowClient {
		t.Errorf("got %v", err)
	}
}

func TestGarbageEndsTheConnection(t *testing.T) {
	c, generator := raw(t)
	go func() {
		_, _ = protocol.ReadFrame(generator, 0, nil)
		_, _ = generator.Write([]byte("\x00\x00\x00\x05\xdd\xff\xff\xff\xff"))
	}()
	if _, err := collect(t.Context(), c, Request{Prompt: "one"}); !errors.Is(err, ErrConnectionLost) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsRunningLoops(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Ending: fakegen.Mute})
	var last error
	for _, err := range c.Generate(t.Context(), Request{Prompt: "one"}) {
		last = err
		c.Close()
	}
	if !errors.Is(last, ErrClosed) {
		t.Errorf("ended with %v", last)
	}
	if _, err := c.Tokenize(t.Context(), "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestNoGoroutineIsLeaked(t *testing.T) {
	before := runtime.NumGoroutine()
	path := socket(t)
	g := listen(t, path, fakegen.Script{})
	for range 20 {
		c, err := Dial(t.Context(), Options{Socket: path})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Generate(t.Context(), Request{Prompt: "a b c"}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		c.Close()
	}
	stop := deadline(t)
	for {
		gone, news := g.Gone()
		if gone == 20 {
			break
		}
		select {
		case <-news:
		case <-stop:
			t.Fatalf("%d of 20 connections ended", gone)
		}
	}
	for runtime.NumGoroutine() > before+2 { // the accepting one, and one of the deadline
		select {
		case <-stop:
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		default:
			runtime.Gosched()
		}
	}
}

// TestLost: the channel tells when the connection has ended.
func TestLost(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Ending: fakegen.Drop})
	select {
	case <-c.Lost():
		t.Fatal("lost before anything happened")
	default:
	}
	if _, err := collect(t.Context(), c, Request{Prompt: "one"}); !errors.Is(err, ErrConnectionLost) {
		t.Errorf("got %v", err)
	}
	<-c.Lost()
}

// resetConn is a connection whose writes fail once reset is set, as those of a socket do whose other end closed with
// unread bytes.
type resetConn struct {
	net.Conn
	reset atomic.Bool
	tried chan struct{}
}

// Write fails after reset.
func (c *resetConn) Write(b []byte) (int, error) {
	if !c.reset.Load() {
		return c.Conn.Write(b)
	}
	close(c.tried)
	return 0, syscall.ECONNRESET
}

// The reason that a generator sends before it closes the connection is told, whichever error a write meets meanwhile.
func TestReasonBehindAReset(t *testing.T) {
	ours, theirs := net.Pipe()
	go fakegen.New(fakegen.Script{}).ServeConn(theirs)
	conn := &resetConn{Conn: ours, tried: make(chan struct{})}
	c, err := greet(t.Context(), conn, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn.reset.Store(true)
	go func() {
		<-conn.tried
		frame, _ := protocol.AppendFrame(nil, protocol.Errorf(protocol.CodeDraining, "", "it stops"))
		_, _ = theirs.Write(frame)
		_ = theirs.Close()
	}()
	_, err = collect(t.Context(), c, Request{Prompt: "one"})
	var told *Error
	if !errors.As(err, &told) || told.Code != protocol.CodeDraining {
		t.Errorf("got %v", err)
	}
}
