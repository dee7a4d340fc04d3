package server

import (
	"bytes"
	"net"
	"runtime"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// crowded returns n requests of a connection whose tokens go through the outbox, and the client's side. No thread takes
// them yet.
func crowded(t *testing.T, n int) ([]*request, *testClient) {
	t.Helper()
	r, c := idleRequest(t, generate(1, "ab", 5))
	r.sending.Unlock()
	all := []*request{r}
	for id := uint64(2); len(all) < n; id++ {
		next := newRequest(r.c, r.model, generate(id, "ab", 5), []int32{'a', 'b'})
		next.sending.Unlock()
		all = append(all, next)
	}
	r.c.server.running.Store(inlineRequests + 1)
	r.c.outbox.running = true // run is not called yet
	return all, c
}

// The tokens of a step leave in one write for each connection, in the order in which they came.
func TestOutboxWritesOnceForAConnection(t *testing.T) {
	all, c := crowded(t, 20)
	o := all[0].c.outbox
	var want bytes.Buffer
	for _, r := range all {
		r.Token(engine.Token{ID: 'x'})
		r.Token(engine.Token{Index: 1, ID: 'y'})
		for i, text := range []string{"x", "y"} {
			frame, err := protocol.AppendFrame(nil, &protocol.Token{ID: r.id, Index: i, Token: int32(text[0]), Text: text})
			must(t, err)
			want.Write(frame)
		}
	}
	writes := 0
	send := all[0].c.writes.inline.send
	all[0].c.writes.inline.send = func(fd uintptr) { writes++; send(fd) }
	for _, r := range o.take() {
		r.writeListed()
	}
	got := make([]byte, want.Len())
	_, err := c.conn.Read(got)
	must(t, err)
	if writes != 1 || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d writes, of\n%q, want\n%q", writes, got, want.Bytes())
	}
	if n := all[0].c.listed.Load(); n != 0 || all[0].listed {
		t.Errorf("%d requests of the connection stay listed", n)
	}
}

// What the outbox does not send wakes the request's goroutine: while that sends, and what the client did not take.
func TestOutboxLeavesToTheGoroutine(t *testing.T) {
	for name, change := range map[string]func(*request){
		"it sends":       func(r *request) { r.sending.Lock() },
		"encoded frames": func(r *request) { r.frames = make([]byte, 1) },
		"an overflow":    func(r *request) { r.c.writes.queued = make([]byte, 1); r.c.writes.limit = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := crowded(t, 1)
			change(all[0])
			all[0].Token(engine.Token{ID: 'x'})
			all[0].c.writes.inline = nil
			all[0].c.outbox.take()[0].writeListed()
			select {
			case <-all[0].mailbox.signal:
			case <-time.After(patience):
				t.Error("the goroutine sleeps")
			}
		})
	}
}

// Requests with more work than a token's text wake their goroutine at once; so do all without a thread.
func TestOutboxTakesPlainRequests(t *testing.T) {
	for name, change := range map[string]func(*request){
		"alternatives": func(r *request) { r.params.HasLogprobs = true },
		"stop strings": func(r *request) { r.params.Stop = []string{"z"} },
		"no thread":    func(r *request) { r.c.outbox.running = false },
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := crowded(t, 1)
			change(all[0])
			all[0].Token(engine.Token{ID: 'x'})
			if len(all[0].c.outbox.listed) > 0 || len(all[0].mailbox.signal) == 0 {
				t.Error("the request is listed, or its goroutine sleeps")
			}
		})
	}
}

// Tokens stay in order when some are written by the outbox and some by the request's goroutine, and none is lost.
func TestOutboxKeepsOrder(t *testing.T) {
	const n = 3000
	all, c := crowded(t, 1)
	r := all[0]
	r.sending.Lock() // stream releases it
	must(t, r.c.outbox.open())
	defer r.c.outbox.close()
	go func() { _ = r.c.writes.run() }()
	defer r.c.writes.finish()
	streamed := make(chan struct{})
	go func() { r.stream(); close(streamed) }()
	go func() {
		for i := range n {
			r.Token(engine.Token{Index: i, ID: 'x'})
			switch i % 7 {
			case 0:
				r.mailbox.notify() // the goroutine sends, too
			case 1:
				r.c.server.running.Store(int32(inlineRequests + i%2)) // and the engine's thread
			}
		}
		r.Finish(engine.Finish{Reason: protocol.FinishLength})
	}()
	c.expectInOrder(n)
	<-streamed
}

// A pass over the sockets does not allocate.
func TestOutboxDoesNotAllocate(t *testing.T) {
	all, c := crowded(t, 10)
	buffer := make([]byte, 1<<12)
	pass := func() {
		for _, r := range all {
			r.Token(engine.Token{ID: 'x'})
		}
		for _, r := range all[0].c.outbox.take() {
			r.writeListed()
		}
		_, _ = c.conn.Read(buffer)
	}
	for range 10 {
		pass() // buffers reach their size
	}
	if n := testing.AllocsPerRun(100, pass); n > 0 {
		t.Errorf("%g allocations for a step", n)
	}
}

// The thread ends with the server, after what is listed; later tokens are left to goroutines.
func TestOutboxEnds(t *testing.T) {
	all, c := crowded(t, 1)
	o := all[0].c.outbox
	o.running = false
	must(t, o.open())
	all[0].Token(engine.Token{ID: 'x'})
	o.close()
	if got := expect[protocol.Token](c); got.Text != "x" {
		t.Errorf("got %+v", got)
	}
	o.close() // a second time, as of a server that was closed twice
	if all[0].Token(engine.Token{Index: 1, ID: 'y'}); len(all[0].mailbox.signal) == 0 {
		t.Error("a token after the end wakes nobody")
	}
}

// There is an outbox for every four processors, one at least and four at most, and connections take turns.
func TestOutboxes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, want := range map[int]int{1: 1, 7: 1, 8: 2, 64: 4} {
		runtime.GOMAXPROCS(processors)
		if n := len(newOutboxes()); n != want {
			t.Errorf("%d outboxes on %d processors, wants %d", n, processors, want)
		}
	}
	runtime.GOMAXPROCS(64)
	f := newFixture(t, nil)
	t.Cleanup(func() { f.engine.stop(nil) })
	seen := map[*outbox]int{}
	for number := range uint64(12) {
		c := &net.UnixConn{}
		seen[newConn(f.Server, c, peer{}, number).outbox]++
	}
	if len(seen) != 4 || seen[f.outboxes[0]] != 3 {
		t.Errorf("12 connections are dealt out as %v", seen)
	}
}
