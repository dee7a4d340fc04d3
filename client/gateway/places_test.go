package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// queue has users take places one after another, and records the order in which they get them.
type queue struct {
	t *testing.T
	*places
	mu    sync.Mutex
	order []string
}

func newQueue(t *testing.T, total, waits int) *queue {
	q := &queue{t: t, places: newPlaces(newShares(int64(waits)))}
	q.grow(total)
	return q
}

// enter has a user take a place, or begin to wait for one.
func (q *queue) enter(user, name string) {
	q.t.Helper()
	_, before := q.counts()
	entered := make(chan struct{})
	go func() {
		err := q.take(context.Background(), user)
		if err != nil {
			name = err.Error()
		}
		q.mu.Lock()
		q.order = append(q.order, name)
		q.mu.Unlock()
		close(entered)
	}()
	eventually(q.t, name+" waits or has entered", func() bool {
		_, waiting := q.counts()
		select {
		case <-entered:
			return true
		default:
			return waiting > before
		}
	})
}

func (q *queue) counts() (used, waiting int) {
	q.places.mu.Lock()
	defer q.places.mu.Unlock()
	return q.used, len(q.waiting)
}

// expect waits until those with the given names have entered, in that order.
func (q *queue) expect(names ...string) {
	q.t.Helper()
	eventually(q.t, "all have entered", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.order) >= len(names)
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) != len(names) {
		q.t.Fatalf("got %q, want %q", q.order, names)
	}
	for i := range names {
		if q.order[i] != names[i] {
			q.t.Fatalf("got %q, want %q", q.order, names)
		}
	}
}

// TestPlaces: a user's requests enter in order, a user holds half of the places alone, and of those
// who wait the user with the fewest goes first.
func TestPlaces(t *testing.T) {
	q := newQueue(t, 4, 100)
	q.enter("a", "a1")
	q.enter("a", "a2")
	q.enter("a", "a3") // waits: half is a's
	q.enter("a", "a4")
	q.enter("b", "b1") // finds a place at once
	q.expect("a1", "a2", "b1")
	q.enter("b", "b2")
	q.enter("c", "c1") // the last place
	q.expect("a1", "a2", "b1", "c1")
	q.give("a")
	q.expect("a1", "a2", "b1", "c1") // one place is left, and a and b have one already
	q.give("b")
	q.expect("a1", "a2", "b1", "c1", "b2")
	q.give("c")
	q.expect("a1", "a2", "b1", "c1", "b2", "a3")
	q.give("b")
	q.give("a")
	q.expect("a1", "a2", "b1", "c1", "b2", "a3", "a4")
	q.give("a")
	q.give("a")
	if used, waiting := q.counts(); used != 0 || waiting != 0 || len(q.held) != 0 {
		t.Errorf("%d places are used, %d wait, %v", used, waiting, q.held)
	}
}

// TestWaitsAreBounded: those who find no room to wait are refused, and leaving makes room.
func TestWaitsAreBounded(t *testing.T) {
	q := newQueue(t, 1, 4)
	q.enter("a", "a1")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 2)
	for range 2 {
		go func() { left <- q.take(ctx, "a") }()
	}
	eventually(t, "two wait", func() bool { _, n := q.counts(); return n == 2 })
	if err := q.take(t.Context(), "a"); !errors.Is(err, errQueue) {
		t.Errorf("a third: %v", err)
	}
	if !q.waits.take("b", 1) {
		t.Error("another user finds no room to wait")
	}
	leave()
	if err := errors.Join(<-left, <-left); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "nobody waits", func() bool {
		q.waits.mu.Lock()
		defer q.waits.mu.Unlock()
		return q.waits.used == 1
	})
}

// TestQueueIsBounded: what exceeds the generator's bounds waits, and what exceeds the queue is 429.
func TestQueueIsBounded(t *testing.T) {
	// One place for one user, one for another.
	_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{"x"}, Ending: fakegen.Hang, Slots: 1})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Queue: 2})
	runs := s.open(t.Context(), "/v1/chat/completions", streamedChat)
	waits, leave := context.WithCancel(t.Context())
	defer leave()
	go func() {
		r, err := http.DefaultClient.Do(s.request("POST", "/v1/chat/completions", streamedChat).WithContext(waits))
		if err == nil {
			_ = r.Body.Close()
		}
	}()
	eventually(t, "one waits", func() bool { return s.running.Load() == 2 })
	time.Sleep(10 * time.Millisecond)
	r, err := http.DefaultClient.Do(s.request("POST", "/v1/chat/completions", streamedChat))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
		t.Errorf("beyond the queue: %d %v", r.StatusCode, r.Header)
	}
	_ = runs.Body.Close()
}

// oneBackend returns the generator of a socket.
func oneBackend(socket string) *backend {
	return &backend{o: Generator{Socket: socket}, places: newPlaces(newShares(8))}
}

// TestConnectionsToGenerator: one connection carries as many requests as the protocol allows, then
// there is another one, and users have their own.
func TestConnectionsToGenerator(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Spoil: func(reply any) {
		if w, ok := reply.(*protocol.Welcome); ok {
			w.Limits.Requests = 2
		}
	}})
	b := oneBackend(socket)
	defer b.close()
	borrow := func(user string) *link {
		l, err := b.borrow(t.Context(), user, false)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two, three, other := borrow("a"), borrow("a"), borrow("a"), borrow("b")
	if one != two || three == one || other == one || other == three {
		t.Errorf("a has %p, %p and %p, b has %p", one, two, three, other)
	}
	b.giveBack(one, nil)
	if again := borrow("a"); again != one && again != three {
		t.Error("a connection with room was not used")
	}
	idle := borrow("c")
	b.giveBack(idle, nil)
	if again := borrow("c"); again != idle {
		t.Error("an idle connection was not used")
	}
	three.over = true
	if again := borrow("a"); again == three {
		t.Error("a connection that takes no further requests was used")
	}
	b.giveBack(other, protocol.Errorf(protocol.CodeDraining, "", ""))
	if again := borrow("b"); again == other {
		t.Error("a connection of a generator that drains was used")
	}
}

// TestDeathEndsConnections: when a generator's end is noticed at one connection, no request is sent on another one that
// existed then: a death counts once. Those made since are used.
func TestDeathEndsConnections(t *testing.T) {
	_, socket := fake(t, fakegen.Script{})
	b := oneBackend(socket)
	defer b.close()
	borrow := func(user string) *link {
		l, err := b.borrow(t.Context(), user, false)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, again, other := borrow("a"), borrow("a"), borrow("b")
	end := fmt.Errorf("%w: %w", client.ErrConnectionLost, io.EOF)
	b.giveBack(one, end)
	next := borrow("b")
	if next == other {
		t.Error("a connection to a generator that ended was used")
	}
	b.giveBack(again, end)
	if borrow("b") != next {
		t.Error("a newer connection was not used")
	}
}

// TestConnectionsOfABurst: requests of a user that come at once share a connection too, and one that leaves
// while it connects harms no other one.
func TestConnectionsOfABurst(t *testing.T) {
	_, socket := fake(t, fakegen.Script{})
	b := oneBackend(socket)
	defer b.close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			ctx := t.Context()
			if i%4 == 0 {
				ctx = gone
			}
			if _, err := b.borrow(ctx, "a", false); err != nil && ctx != gone {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(b.links); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	missing := oneBackend("/nowhere/g.sock")
	for range 2 {
		if _, err := missing.borrow(t.Context(), "a", false); !errors.Is(err, client.ErrNoGenerator) {
			t.Error(err)
		}
	}
}

// TestBusyGenerator: a request that the generator's full queue refuses is sent again.
func TestBusyGenerator(t *testing.T) {
	for _, code := range []string{"busy", "too_many_requests", "overloaded", "draining"} {
		_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Fail,
			Error: protocol.Errorf(code, "", "not now")})
		s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
		answer := make(chan string, 1)
		go func() { _, body := s.post("/v1/chat/completions", someChat); answer <- body }()
		eventually(t, "it runs", func() bool { return s.running.Load() == 1 })
		fakeAt(t, socket, fakegen.Script{Chat: true, Pieces: []string{"at last"}})
		b := s.backends.list[0].list[0]
		eventually(t, "the request is answered", func() bool {
			b.mu.Lock()
			for _, l := range b.links {
				l.over = true // the next attempt takes another connection
			}
			b.mu.Unlock()
			return len(answer) == 1
		})
		if body := parsed(t, <-answer); body["choices"] == nil {
			t.Errorf("%s: %v", code, body)
		}
	}
}
