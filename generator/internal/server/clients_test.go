package server

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// flood starts requests with several MiB of tokens, more than any socket buffer holds,
// lets the engine run some steps, and reads nothing.
func (f *fixture) flood(steps int) *testClient {
	f.t.Helper()
	f.engine.allow(0)
	c := f.client()
	for id := range uint64(protocol.MaxRequests) {
		g := generate(id, "ab", testContext)
		g.Logprobs = ptr(protocol.MaxLogprobs)
		c.send(g)
	}
	f.awaitLive(protocol.MaxRequests)
	f.engine.allow(steps)
	return c
}

// A client that does not read is cut off when too many bytes are unsent. Its sequences end
// at once; other clients are served.
func TestClientThatDoesNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		cut   bool
	}{"guard": {protocol.MaxUnsent, true}, "guard off": {1 << 40, false}} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, func(b *bounds) { b.unsent, b.stallTimeout = c.limit, time.Hour })
			slow := f.flood(testContext - 20) // some of each sequence is left
			if c.cut {
				f.awaitLive(0)
			} else {
				eventually(t, "more bytes are unsent than the guard allows", func() bool {
					return f.unsent() > 2*protocol.MaxUnsent
				})
			}
			f.engine.allow(-1)
			f.works()
			if code := slow.closedAfterAll(c.cut); c.cut != (code == protocol.CodeSlowClient) {
				t.Errorf("got %q", code)
			}
		})
	}
}

// closedAfterAll reads until the connection closes, or until the 64 requests have ended.
func (c *testClient) closedAfterAll(closes bool) (code string) {
	if closes {
		return c.closedAfter()
	}
	if got, err := c.collect(64); err != nil || len(got) != 64 {
		c.t.Errorf("%d requests ended: %v", len(got), err)
	}
	return ""
}

// A client is cut off if a write to it makes no progress, even if few bytes are unsent.
func TestClientThatStalls(t *testing.T) {
	for name, c := range map[string]struct {
		stall time.Duration
		cut   bool
	}{"guard": {50 * time.Millisecond, true}, "guard off": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, func(b *bounds) { b.unsent, b.stallTimeout = 1<<40, c.stall })
			slow := f.flood(testContext - 20)
			if c.cut {
				f.awaitLive(0)
				eventually(t, "its connection is gone", func() bool { return f.Status().Connections == 0 })
			} else {
				time.Sleep(500 * time.Millisecond) // ten times what the guard allows
				if live, _ := f.engine.counts(); live == 0 {
					t.Error("its sequences have ended")
				}
			}
			f.engine.allow(-1)
			f.works()
			_ = slow.conn.Close()
		})
	}
}

// A slow client that keeps reading is served, though the whole takes longer than the
// stall time: only a write without progress counts.
func TestSlowReaderIsServed(t *testing.T) {
	t.Parallel()
	f := ready(t, func(b *bounds) { b.unsent, b.stallTimeout = 1<<40, 3*time.Second })
	c := f.flood(-1)
	c.frames.R = bufio.NewReaderSize(lazyReader{c.conn}, 64<<10)
	begun := time.Now()
	if got, err := c.collect(protocol.MaxRequests); err != nil || len(got) != protocol.MaxRequests {
		t.Errorf("%d requests ended: %v", len(got), err)
	}
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("it took %v, less than the stall time: this proves nothing", took)
	}
}

// lazyReader sleeps before each read.
type lazyReader struct{ io.Reader }

func (r lazyReader) Read(b []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return r.Reader.Read(b)
}

// A long echo waits for its reader instead of overflowing the write queue.
func TestEchoWaitsForTheReader(t *testing.T) {
	f := start(t, nil)
	m := f.model()
	m.Limits.Context = 100_000
	f.SetReady(m)
	c := f.client()
	g := generate(1, "", 1)
	g.Prompt, g.Tokens, g.Echo = nil, sameTokens(40_000, 'x'), true
	c.send(g)
	eventually(t, "the write queue fills", func() bool { return f.unsent() > protocol.MaxUnsent/2 })
	got, err := c.collect(1)
	if err != nil || got[1].text != strings.Repeat("x", 40_001) {
		t.Errorf("%d bytes of text, %v", len(got[1].text), err)
	}
}

// unsent returns the bytes in all write queues.
func (f *fixture) unsent() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.writes.mu.Lock()
		n += c.writes.unsent()
		c.writes.mu.Unlock()
	}
	return n
}

// Frames that wait in a connection's socket when it is cut are not served.
func TestCutConnectionIsNotServed(t *testing.T) {
	f := ready(t, nil)
	f.tok.gate = make(chan struct{})
	c := f.client()
	c.send(&protocol.Tokenize{Text: "ab"})
	eventually(t, "the reader is busy", func() bool { return f.tok.running.Load() == 1 })
	c.send(&protocol.Generate{ID: 1, Tokens: []int32{1}})
	f.onlyConn().hangUp()
	close(f.tok.gate)
	c.wantClosed()
	if _, submits := f.engine.counts(); submits > 0 {
		t.Error("the engine was asked")
	}
}

// When a client closes its connection, its requests end, also after a half close.
func TestClientThatLeaves(t *testing.T) {
	for name, shut := range map[string]bool{"close": false, "half close, then close": true} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, nil)
			f.engine.allow(1)
			c := f.client()
			c.send(generate(1, "ab", 100))
			expect[protocol.Token](c)
			if shut {
				must(t, c.conn.CloseWrite())
				time.Sleep(20 * time.Millisecond)
				if live, _ := f.engine.counts(); live != 1 {
					t.Error("the half close ended its request")
				}
			}
			must(t, c.conn.Close())
			f.awaitLive(0)
			eventually(t, "its connection is gone", func() bool { return f.Status().Connections == 0 })
		})
	}
}

// After a half close a client gets the answers to all its requests, then the close, also if
// the requests end just as the server notices the half close. A server that waits only for
// requests that still run fails here about once in 300 rounds.
func TestHalfClosedClientGetsItsAnswers(t *testing.T) {
	f := ready(t, nil)
	for range 1000 {
		f.engine.allow(0)
		c := f.client()
		c.send(generate(1, "ab", 100))
		c.send(generate(2, "cd", 3))
		c.send(&protocol.StatusRequest{})
		must(t, c.conn.CloseWrite())
		expect[protocol.Status](c)
		f.engine.allow(-1)
		got, err := c.collect(2)
		if err != nil || len(got[1].tokens) != 100 || got[2].text != "cdc" || got[1].done == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		c.wantClosed()
		must(t, c.conn.Close())
	}
	eventually(t, "its connections are gone", func() bool { return f.Status().Connections == 0 })
}

// A server that stops does not wait for half-closed connections.
func TestHalfClosedClientAtShutdown(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(1)
	c := f.client()
	c.send(generate(1, "ab", 100))
	expect[protocol.Token](c)
	must(t, c.conn.CloseWrite())
	f.stop()
	c.wantError(protocol.CodeShutdown)
	c.wantClosed()
}

// Answers from before a half close still reach the client.
func TestAnswersBeforeHalfClose(t *testing.T) {
	f := ready(t, nil)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	c.send(&protocol.StatusRequest{})
	must(t, c.conn.CloseWrite())
	expect[protocol.Welcome](c)
	expect[protocol.Status](c)
	c.wantClosed()
}

// 1,000 clients leave in the middle of their streams. No sequence, goroutine or descriptor
// is left.
func TestKilledClients(t *testing.T) {
	f := ready(t, nil)
	f.works()
	eventually(t, "the first client is gone", func() bool { return f.Status().Connections == 0 })
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	for range 10 {
		f.engine.allow(1)
		var wave sync.WaitGroup
		for i := range 100 {
			wave.Go(func() { f.dieAfterOneToken(uint64(i)) })
		}
		f.engine.allow(-1)
		wave.Wait()
		eventually(t, "their connections are gone", func() bool { return f.Status().Connections == 0 })
	}
	if live, submits := f.engine.counts(); live != 0 || submits != 1001 {
		t.Errorf("%d sequences are left of %d", live, submits)
	}
	eventually(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "descriptors are back", func() bool { return openFiles(t) <= descriptors })
	f.works()
}

func (f *fixture) dieAfterOneToken(id uint64) {
	c := f.client()
	c.send(generate(id, "ab", testContext))
	expect[protocol.Token](c)
	_ = c.conn.Close()
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// 64 clients make 240 requests each, 1,000 with REEL_LONG, 20 at once. No token is lost or sent to another
// request.
func TestManyClients(t *testing.T) {
	f := ready(t, nil)
	requests := 1000
	if raceEnabled {
		requests = 100
	} else if os.Getenv("REEL_LONG") == "" {
		requests = 240
	}
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			if err := f.manyRequests(n, requests); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		})
	}
	all.Wait()
	st := f.Status()
	if want := uint64(64 * requests); st.Requests.Finished != want || st.Requests.Failed+st.Requests.Refused > 0 {
		t.Errorf("status counts %+v", st.Requests)
	}
}

func (f *fixture) manyRequests(client, requests int) error {
	const window = 20
	c := f.client()
	_ = c.conn.SetDeadline(time.Now().Add(5 * patience))
	for first := 0; first < requests; first += window {
		for i := range window {
			prompt := fmt.Sprintf("%d.%d;", client, first+i)
			c.send(generate(uint64(i), prompt, len(prompt)+i%3))
		}
		got, err := c.collect(window)
		if err != nil {
			return err
		}
		for i := range window {
			prompt := fmt.Sprintf("%d.%d;", client, first+i)
			want := (prompt + prompt)[:len(prompt)+i%3]
			if g := got[uint64(i)]; g == nil || g.text != want || len(g.tokens) != len(want) {
				return fmt.Errorf("request %d: got %+v, want %q", first+i, g, want)
			}
		}
	}
	return nil
}
