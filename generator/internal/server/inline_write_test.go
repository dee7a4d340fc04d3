package server

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// idleRequest returns a request of a connection without running goroutines, and the
// client's side.
func idleRequest(t *testing.T, g *protocol.Generate) (*request, *testClient) {
	t.Helper()
	f := newFixture(t, nil)
	t.Cleanup(func() { f.engine.stop(nil) })
	ends := socketPair(t)
	f.SetReady(f.model())
	model, e := f.beginRequest()
	if e != nil {
		t.Fatal(e)
	}
	r := newRequest(newConn(f.Server, ends[0], peer{}, 1), model, g, []int32{'a', 'b'})
	client := &testClient{t: t, conn: ends[1], frames: protocol.FrameReader{R: bufio.NewReader(ends[1])}}
	_ = client.conn.SetDeadline(time.Now().Add(patience))
	return r, client
}

// socketPair returns the ends of a connection.
func socketPair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "pair")
		end, err := net.FileConn(file)
		must(t, err)
		_ = file.Close()
		t.Cleanup(func() { _ = end.Close() })
		ends[i] = end.(*net.UnixConn)
	}
	return ends
}

// Token writes to the client before it returns.
func TestInlineWrite(t *testing.T) {
	r, c := idleRequest(t, generate(1, "ab", 5))
	r.sending.Unlock()
	r.Token(engine.Token{ID: 'x'})
	r.Token(engine.Token{Index: 1, ID: 'y'})
	first, second := expect[protocol.Token](c), expect[protocol.Token](c)
	if first.Text != "x" || second.Text != "y" || second.Index != 1 {
		t.Errorf("got %+v, %+v", first, second)
	}
}

// A token is left to the request's goroutine if its work may take long, or if earlier
// tokens are unsent.
func TestNoInlineWrite(t *testing.T) {
	stop, logprobs := generate(1, "ab", 5), generate(1, "ab", 5)
	stop.Stop, logprobs.Logprobs = []string{"z"}, new(2)
	for name, c := range map[string]struct {
		g      *protocol.Generate
		change func(*request)
	}{
		"stop strings":          {stop, func(*request) {}},
		"alternatives":          {logprobs, func(*request) {}},
		"one call":              {nil, func(r *request) { r.text.read = &reading{stops: true} }},
		"many requests":         {nil, func(r *request) { r.c.server.running.Store(inlineRequests + 1) }},
		"the goroutine sends":   {nil, func(r *request) { r.sending.Lock() }},
		"tokens in the mailbox": {nil, func(r *request) { r.mailbox.Token(engine.Token{}) }},
		"finish in the mailbox": {nil, func(r *request) { r.mailbox.Finish(engine.Finish{}) }},
		"encoded frames":        {nil, func(r *request) { r.frames = make([]byte, 1) }},
		"queued frames":         {nil, func(r *request) { r.c.writes.queued = make([]byte, 1) }},
		"frames being written":  {nil, func(r *request) { r.c.writes.writing = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.g
			if g == nil {
				g = generate(1, "ab", 5)
			}
			r, _ := idleRequest(t, g)
			r.sending.Unlock()
			c.change(r)
			if r.writeInline(&engine.Token{ID: 'x'}) {
				t.Error("the token was written inline")
			}
		})
	}
}

// Tokens stay in order when some are written inline and some by the request's goroutine.
func TestInlineWritesKeepOrder(t *testing.T) {
	const n = 3000
	r, c := idleRequest(t, generate(1, "ab", 5))
	go func() { _ = r.c.writes.run() }()
	defer r.c.writes.finish()
	streamed := make(chan struct{})
	go func() { r.stream(); close(streamed) }()
	go func() {
		for i := range n {
			r.Token(engine.Token{Index: i, ID: 'x'})
			if i%5 == 0 && r.sending.TryLock() { // leaves some of the next to the goroutine
				go r.sending.Unlock()
			}
		}
		r.Finish(engine.Finish{Reason: protocol.FinishLength})
	}()
	c.expectInOrder(n)
	<-streamed
}

// An inline write does not allocate.
func TestInlineWriteDoesNotAllocate(t *testing.T) {
	r, c := idleRequest(t, generate(1, "ab", 5))
	r.sending.Unlock()
	token, sink := engine.Token{ID: 'x'}, make([]byte, 1<<10)
	if n := testing.AllocsPerRun(1000, func() {
		if !r.writeInline(&token) {
			t.Fatal("the token was not written inline")
		}
		_, _ = c.conn.Read(sink)
	}); n > 1 { // byteDecoder's text
		t.Errorf("%v allocations a token", n)
	}
}

// The write queue's writer sends the bytes that the kernel did not take inline, in order.
func TestWriteQueueWritesInline(t *testing.T) {
	r, c := idleRequest(t, generate(1, "ab", 5))
	q := r.c.writes
	sent := 0
	add := func() {
		frame, err := protocol.AppendFrame(nil, &protocol.Token{Index: sent})
		must(t, err)
		if sent++; q.add(frame) {
			t.Fatal("the write queue overflows")
		}
	}
	q.queued = []byte{0, 0, 0, 1, 0x80}
	add() // queues behind the bytes that are there
	if !bytes.HasPrefix(q.queued, []byte{0, 0, 0, 1, 0x80, 0}) {
		t.Errorf("%x is queued", q.queued)
	}
	q.queued = nil
	for sent = 0; q.empty(); { // until the socket is full
		add()
	}
	for range 100 {
		add()
	}
	go func() { _ = q.run() }()
	defer q.finish()
	for i := range sent {
		if m := expect[protocol.Token](c); m.Index != i {
			t.Fatalf("got frame %d, want %d", m.Index, i)
		}
	}
	eventually(t, "the queue is empty", q.empty)
	add()
	_ = r.c.sock.Close()
	if n := q.inline.write([]byte("x")); n != 0 {
		t.Errorf("a closed socket took %d bytes", n)
	}
}

// A request wakes the engine before it is decoded; no other message does.
func TestRequestWakesTheEngine(t *testing.T) {
	f := ready(t, nil)
	c := f.client()
	c.send(&protocol.StatusRequest{})
	expect[protocol.Status](c)
	if n := f.engine.expected.Load(); n != 0 {
		t.Errorf("status woke the engine %d times", n)
	}
	c.ask(generate(1, "ab", 2))
	if n := f.engine.expected.Load(); n != 1 {
		t.Errorf("one request woke the engine %d times", n)
	}
}
