package server

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// unfinished returns the first n bytes of a frame of 4 MiB, without an id.
func unfinished(n int) []byte { return append([]byte{0, 0x40, 0, 0}, make([]byte, n)...) }

// receivedBytes returns the bytes that frames in reception hold.
func (f *fixture) receivedBytes() int {
	f.frameBudget.mu.Lock()
	defer f.frameBudget.mu.Unlock()
	return f.frameBudget.received
}

// Unfinished frames of one user hold at most the user's share of memory.
func TestUndecodedBytes(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		cut   bool
	}{"guard": {protocol.MaxUndecoded, true}, "guard off": {1 << 40, false}} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, func(b *bounds) {
				b.undecoded, b.contendedFrameTimeout, b.budgetTimeout = c.limit, time.Hour, 100*time.Millisecond
			})
			part := unfinished(3 << 20)
			before := residentBytes()
			var all []*testClient
			for range 12 {
				client := f.client()
				all = append(all, client)
				go client.conn.Write(part)
			}
			if c.cut {
				f.works() // small frames need no bytes of the budget
				var refused atomic.Int32
				for _, client := range all {
					go func() {
						if m, _ := client.read(); m != nil && m.(*protocol.Error).Code == protocol.CodeOverloaded {
							refused.Add(1)
						}
					}()
				}
				eventually(t, "all but two are refused", func() bool { return int(refused.Load()) == len(all)-2 })
			}
			eventually(t, "the bytes have arrived", func() bool { return c.cut || residentBytes()-before > 24<<20 })
			if taken := residentBytes() - before; taken < memoryBound != c.cut && !raceEnabled {
				t.Errorf("%d MiB are taken", taken>>20)
			}
			for _, client := range all {
				_ = client.conn.Close()
			}
			eventually(t, "the bytes are free again", func() bool { return f.receivedBytes() == 0 })
			f.works()
		})
	}
}

// Seven connections of one user stop inside a frame. Another user's long prompt is served
// at once; without shares it waits for the attacker.
func TestUnfinishedFramesOfAnotherUser(t *testing.T) {
	for name, c := range map[string]struct {
		share  int
		served bool
	}{"guard": {protocol.MaxUndecoded, true}, "guard off": {2 * protocol.MaxUndecoded, false}} {
		t.Run(name, func(t *testing.T) {
			f, uid := readyAs(t, func(b *bounds) {
				b.contendedFrameTimeout, b.budgetTimeout = time.Hour, 500*time.Millisecond
			})
			f.frameBudget.share, f.frameBudget.total = c.share, 2*protocol.MaxUndecoded
			uid.Store(1)
			for range 7 {
				go f.client().conn.Write(unfinished(protocol.MaxFrame - 1))
			}
			eventually(t, "the unfinished frames hold their share", func() bool { return f.receivedBytes() == c.share })
			uid.Store(2)
			small := &protocol.Generate{ID: 3, Tokens: sameTokens(100, 1), Stop: []string{"x"}, MaxTokens: ptr(1)}
			if got := f.client().ask(small); got.err != nil {
				t.Fatalf("a small frame: %v", got.err)
			}
			e := f.longText()
			if served := e.Code == protocol.CodePromptTooLong; served != c.served {
				t.Errorf("a frame of 1 MB: %v", e)
			}
		})
	}
}

// longText sends a frame of 1 MB and returns the error that answers it: prompt_too_long
// if the frame was read.
func (f *fixture) longText() *protocol.Error {
	f.t.Helper()
	c := f.client()
	defer c.conn.Close()
	c.send(generate(9, strings.Repeat("a", 1<<20), 1))
	e := expect[protocol.Error](c)
	if e.ID == nil || *e.ID != 9 {
		f.t.Errorf("the error does not name the request: %+v", e)
	}
	return e
}

// If two users' unfinished frames hold the whole budget, a third user's frame waits until
// their time is up, and is then read. The two users' requests continue.
func TestUnfinishedFramesGiveWay(t *testing.T) {
	const contended = 100 * time.Millisecond
	for name, c := range map[string]struct {
		contended time.Duration
		code      string
	}{"guard": {contended, protocol.CodePromptTooLong}, "guard off": {time.Hour, protocol.CodeOverloaded}} {
		t.Run(name, func(t *testing.T) {
			f, uid := readyAs(t, func(b *bounds) {
				b.contendedFrameTimeout, b.budgetTimeout = c.contended, 10*contended
			})
			f.engine.allow(0)
			var attackers []*testClient
			for i := range 4 {
				uid.Store(uint32(1 + i/2))
				a := f.client()
				a.send(generate(1, "ab", 5))
				attackers = append(attackers, a)
				go a.conn.Write(unfinished(protocol.MaxFrame - 1))
			}
			eventually(t, "the unfinished frames hold the whole budget", func() bool {
				return f.receivedBytes() == 2*protocol.MaxUndecoded
			})
			uid.Store(3)
			if e := f.longText(); e.Code != c.code {
				t.Errorf("the third user's frame: %v", e)
			}
			f.engine.allow(-1)
			for _, a := range attackers {
				got, err := a.collect(1)
				var e *protocol.Error
				if errors.As(err, &e) && e.Code == protocol.CodeOverloaded {
					got, _ = a.collect(1)
				}
				if got[1] == nil || got[1].done == nil {
					t.Errorf("its running request: %+v, %v", got[1], err)
				}
			}
		})
	}
}

// A refused frame that names its request is answered with that id, and the
// connection serves the next one.
func TestRefusedFrameNamesItsRequest(t *testing.T) {
	f, uid := readyAs(t, func(b *bounds) { b.contendedFrameTimeout, b.budgetTimeout = time.Hour, 20*time.Millisecond })
	uid.Store(1)
	for range 2 {
		go f.client().conn.Write(unfinished(protocol.MaxFrame - 1))
	}
	eventually(t, "the share is used up", func() bool { return f.receivedBytes() == protocol.MaxUndecoded })
	c := f.client()
	c.send(generate(9, strings.Repeat("a", 1<<20), 1))
	if e := c.wantError(protocol.CodeOverloaded); e.ID == nil || *e.ID != 9 || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	if got := c.ask(generate(10, "ab", 3)); got.text != "aba" {
		t.Errorf("the next request: %+v", got)
	}
	if s := f.Status(); s.Requests.Refused != 1 {
		t.Errorf("%d requests are counted as refused", s.Requests.Refused)
	}
}

// Random frames of random users: no share is exceeded, every byte is returned, and no
// frame is refused.
func TestFrameBudgetKeepsShares(t *testing.T) {
	b := newFrameBudget(bounds{undecoded: 100, contendedFrameTimeout: time.Hour, budgetTimeout: patience})
	var all sync.WaitGroup
	var refused atomic.Int32
	for n := range 24 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(n)))
			r := &reservation{budget: b, user: uint32(n % 5), interrupt: func() {}}
			for range 200 {
				if _, err := r.acquire(1 + random.IntN(100)); err != nil {
					refused.Add(1)
					continue
				}
				b.mu.Lock()
				if b.received > 200 || b.held[r.user] > 100 {
					t.Errorf("%d bytes are held, %d of user %d", b.received, b.held[r.user], r.user)
				}
				b.mu.Unlock()
				if random.IntN(2) == 0 {
					r.markDecoded()
				}
				r.release()
			}
		})
	}
	all.Wait()
	if refused.Load() > 0 || b.received != 0 || len(b.held)+len(b.holders)+len(b.waiting) != 0 {
		t.Errorf("%d refused, %d bytes left, %v", refused.Load(), b.received, b.held)
	}
}

// Texts that wait to be tokenized count in their user's share only: of four texts of 3 MiB
// two wait and two are refused. With a larger share all four wait.
func TestWaitingTexts(t *testing.T) {
	for name, c := range map[string]struct {
		share   int
		waiting int64
	}{"guard": {protocol.MaxUndecoded, 2}, "guard off": {4 * protocol.MaxUndecoded, 4}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(b *bounds) { b.undecoded, b.budgetTimeout = c.share, 200*time.Millisecond })
			uid := new(atomic.Uint32)
			f.as(uid)
			f.serve()
			model := f.model()
			model.Limits.Context = 4 << 20
			f.SetReady(model)
			f.tok.gate = make(chan struct{})
			text, err := protocol.AppendFrame(nil, &protocol.Tokenize{Text: strings.Repeat("a", 3<<20)})
			if err != nil {
				t.Fatal(err)
			}
			var refused atomic.Int64
			for range 4 {
				client := f.client()
				go client.conn.Write(text) // fails if the frame is refused
				go func() {
					if m, _ := client.read(); m != nil && m.(*protocol.Error).Code == protocol.CodeOverloaded {
						refused.Add(1)
					}
				}()
			}
			tokenizing := func() int64 { return int64(f.texts.waiters()) + f.tok.running.Load() }
			eventually(t, "each waits or is refused", func() bool { return tokenizing()+refused.Load() == 4 })
			if tokenizing() != c.waiting {
				t.Errorf("%d texts wait, want %d", tokenizing(), c.waiting)
			}
			uid.Store(1)
			other := f.client()
			go other.conn.Write(text)
			eventually(t, "another user's text is received", func() bool { return tokenizing() == c.waiting+1 })
			close(f.tok.gate)
			other.wantError(protocol.CodePromptTooLong) // after it was tokenized
			eventually(t, "nothing is held", func() bool { return f.receivedBytes() == 0 })
		})
	}
}

// Nine users who open as many connections as they may leave the last quarter to users with
// few connections.
func TestFewConnectionsFindAPlace(t *testing.T) {
	b := defaultBounds()
	greedy := func(allowed func(mine, all int) bool) (all int) {
		for range 9 {
			for mine := 0; allowed(mine, all); mine++ {
				all++
			}
		}
		return all
	}
	if all := greedy(b.mayConnect); all > 2*b.connections-b.connections/2+9*4 {
		t.Errorf("nine greedy users hold %d of %d connections", all, 2*b.connections)
	} else {
		for user := range 9 {
			for mine := range 4 {
				if !b.mayConnect(mine, all) {
					t.Fatalf("user %d is refused connection %d while %d are open", user, mine+1, all)
				}
				all++
			}
		}
	}
	without := func(mine, all int) bool { return mine < min(b.connections, 2*b.connections-all) }
	if all := greedy(without); all < 2*b.connections-1 {
		t.Errorf("without the reserve nine users hold %d only", all)
	}
}
