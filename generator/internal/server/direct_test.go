package server

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel/generator/internal/engine"
	"reel/protocol"
)

// alone is a request of a connection of which nothing runs, and the client's side.
func alone(t *testing.T, g *protocol.Generate) (*request, *peerClient) {
	t.Helper()
	f := newFixture(t, nil)
	t.Cleanup(func() { f.engine.stop(nil) })
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "pair")
		end, err := net.FileConn(file)
		must(t, err)
		_ = file.Close()
		t.Cleanup(func() { _ = end.Close() })
		ends[i] = end.(*net.UnixConn)
	}
	f.SetReady(f.model())
	model, e := f.begin()
	if e != nil {
		t.Fatal(e)
	}
	r := newRequest(newConn(f.Server, ends[0], peer{}, 1), model, g, []int32{'a', 'b'})
	client := &peerClient{t: t, conn: ends[1], frames: protocol.FrameReader{R: bufio.NewReader(ends[1])}}
	_ = client.conn.SetDeadline(time.Now().Add(patience))
	return r, client
}

// A token goes to the client on the thread that brings it.
func TestDirect(t *testing.T) {
	r, c := alone(t, generate(1, "ab", 5))
	r.work.Unlock()
	r.Token(engine.Token{ID: 'x'})
	r.Token(engine.Token{Index: 1, ID: 'y'})
	first, second := expect[protocol.Token](c), expect[protocol.Token](c)
	if first.Text != "x" || second.Text != "y" || second.Index != 1 {
		t.Errorf("got %+v, %+v", first, second)
	}
}

// What may take long, or would overtake, is left to the request's goroutine.
func TestNotDirect(t *testing.T) {
	stop, logprobs := generate(1, "ab", 5), generate(1, "ab", 5)
	stop.Stop, logprobs.Logprobs = []string{"z"}, new(2)
	for name, c := range map[string]struct {
		g      *protocol.Generate
		change func(*request)
	}{
		"stop strings":          {stop, func(*request) {}},
		"alternatives":          {logprobs, func(*request) {}},
		"many requests":         {nil, func(r *request) { r.c.s.running.Store(directRequests + 1) }},
		"somebody at work":      {nil, func(r *request) { r.work.Lock() }},
		"tokens wait":           {nil, func(r *request) { r.box.Token(engine.Token{}) }},
		"the end waits":         {nil, func(r *request) { r.box.Finish(engine.Finish{}) }},
		"frames wait":           {nil, func(r *request) { r.frames = make([]byte, 1) }},
		"frames are unsent":     {nil, func(r *request) { r.c.out.pending = make([]byte, 1) }},
		"frames are on the way": {nil, func(r *request) { r.c.out.inflight = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.g
			if g == nil {
				g = generate(1, "ab", 5)
			}
			r, _ := alone(t, g)
			r.work.Unlock()
			c.change(r)
			if r.direct(&engine.Token{ID: 'x'}) {
				t.Error("the engine's thread sent it")
			}
		})
	}
}

// Tokens keep their order, whoever sends them.
func TestDirectKeepsOrder(t *testing.T) {
	const n = 3000
	r, c := alone(t, generate(1, "ab", 5))
	go func() { _ = r.c.out.write() }()
	defer r.c.out.finish()
	streamed := make(chan struct{})
	go func() { r.stream(); close(streamed) }()
	go func() {
		for i := range n {
			r.Token(engine.Token{Index: i, ID: 'x'})
			if i%5 == 0 && r.work.TryLock() { // some of the next are left to the goroutine
				go r.work.Unlock()
			}
		}
		r.Finish(engine.Finish{Reason: protocol.FinishLength})
	}()
	for i := range n {
		if m := expect[protocol.Token](c); m.Index != i {
			t.Fatalf("token %d came as number %d", m.Index, i)
		}
	}
	expect[protocol.Done](c)
	<-streamed
}

// A token costs the engine's thread no allocation.
func TestDirectDoesNotAllocate(t *testing.T) {
	r, c := alone(t, generate(1, "ab", 5))
	r.work.Unlock()
	token, sink := engine.Token{ID: 'x'}, make([]byte, 1<<10)
	if n := testing.AllocsPerRun(1000, func() {
		if !r.direct(&token) {
			t.Fatal("the engine's thread did not send it")
		}
		_, _ = c.conn.Read(sink)
	}); n > 1 { // byteDecoder's text
		t.Errorf("%v allocations a token", n)
	}
}

// What the kernel does not take at once is written later, in order.
func TestOutboxWritesAtOnce(t *testing.T) {
	r, c := alone(t, generate(1, "ab", 5))
	out := r.c.out
	sent := 0
	add := func() {
		frame, err := protocol.AppendFrame(nil, &protocol.Token{Index: sent})
		must(t, err)
		if sent++; out.add(frame) {
			t.Fatal("the outbox overflows")
		}
	}
	out.pending = []byte{0, 0, 0, 1, 0x80}
	add() // waits behind what is there
	if !bytes.HasPrefix(out.pending, []byte{0, 0, 0, 1, 0x80, 0}) {
		t.Errorf("%x waits", out.pending)
	}
	out.pending = nil
	for sent = 0; out.empty(); { // until the socket is full
		add()
	}
	for range 100 {
		add()
	}
	go func() { _ = out.write() }()
	defer out.finish()
	for i := range sent {
		if m := expect[protocol.Token](c); m.Index != i {
			t.Fatalf("frame %d came as number %d", m.Index, i)
		}
	}
	eventually(t, "all is with the kernel", out.empty)
	add()
	_ = r.c.sock.Close()
	if n := out.now.write([]byte("x")); n != 0 {
		t.Errorf("a closed socket took %d bytes", n)
	}
}

// The engine gets up for a request while it is decoded, and for nothing else.
func TestExpectsRequests(t *testing.T) {
	f := ready(t, nil)
	c := f.client()
	c.send(&protocol.StatusRequest{})
	expect[protocol.Status](c)
	if n := f.engine.expected.Load(); n != 0 {
		t.Errorf("it got up %d times for nothing", n)
	}
	c.ask(generate(1, "ab", 2))
	if n := f.engine.expected.Load(); n != 1 {
		t.Errorf("it got up %d times for one request", n)
	}
}
