//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// heavyUser is a connection that keeps a constant number of requests running or waiting, and records the time
// between the tokens of each.
type heavyUser struct {
	p    *peer
	mu   sync.Mutex
	gaps []time.Duration
	last map[uint64]time.Time // of the last token, by request
}

// heavyUser starts n requests of a user; each that ends is followed by another.
func (g *generator) heavyUser(uid, n int, request func(id uint64) *protocol.Generate) *heavyUser {
	g.t.Helper()
	var p *peer
	as(g.t, uid, func() { p = g.peer() })
	_ = p.conn.SetDeadline(time.Time{})
	for id := range uint64(n) {
		p.send(request(id))
	}
	h := &heavyUser{p: p, last: map[uint64]time.Time{}}
	go func() {
		for {
			m, err := p.read()
			if err != nil {
				return // end closed the connection
			}
			if d, ended := m.(*protocol.Done); ended {
				delete(h.last, d.ID)
				frame, _ := protocol.AppendFrame(nil, request(d.ID))
				_, _ = p.conn.Write(frame)
			} else if token, is := m.(*protocol.Token); is {
				h.note(token.ID, time.Now())
			}
		}
	}()
	return h
}

// note records the time of a request's token.
func (h *heavyUser) note(id uint64, now time.Time) {
	if before, ok := h.last[id]; ok {
		h.mu.Lock()
		h.gaps = append(h.gaps, now.Sub(before))
		h.mu.Unlock()
	}
	h.last[id] = now
}

// end closes the connection. It returns the 99th percentile of the time between tokens.
func (h *heavyUser) end() time.Duration {
	_ = h.p.conn.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	return p99(h.gaps)
}

// p99 returns the 99th percentile of gaps, which it sorts; 0 if there are none.
func p99(gaps []time.Duration) time.Duration {
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[len(gaps)*99/100]
}

// probe sends n requests of 4 tokens as a user, one at a time. It returns the longest time to a first token and the
// 99th percentile of the time between tokens.
func (g *generator) probe(uid, n int) (first, itl time.Duration) {
	g.t.Helper()
	var p *peer
	as(g.t, uid, func() { p = g.peer() })
	defer func() { _ = p.conn.Close() }()
	var gaps []time.Duration
	for id := range uint64(n) {
		last := time.Now()
		_ = p.conn.SetDeadline(last.Add(patience))
		p.send(&protocol.Generate{ID: id, Tokens: []int32{1, 2, 3}, MaxTokens: new(4), IgnoreEOS: true})
		for i := range 4 {
			expect[*protocol.Token](p)
			now := time.Now()
			if wait := now.Sub(last); i == 0 {
				first = max(first, wait)
			} else {
				gaps = append(gaps, wait)
			}
			last = now
		}
		expect[*protocol.Done](p)
	}
	return first, p99(gaps)
}

// loads are requests with which one connection can load a generator.
var loads = map[string]func(context int, id uint64) *protocol.Generate{
	"completions": func(context int, id uint64) *protocol.Generate {
		return &protocol.Generate{ID: id, Tokens: []int32{1, 2, 3}, MaxTokens: new(context - 24), IgnoreEOS: true}
	},
	"prompts": func(context int, id uint64) *protocol.Generate {
		return &protocol.Generate{ID: id, Tokens: make([]int32, context-24), MaxTokens: new(8), IgnoreEOS: true}
	},
	"any": func(context int, id uint64) *protocol.Generate {
		prompt := 1 + rand.IntN(context-2)
		most := 1 + rand.IntN(context-prompt)
		return &protocol.Generate{ID: id, Tokens: make([]int32, prompt), MaxTokens: new(most), IgnoreEOS: true}
	},
}

// Beside 64 requests of 1,000 tokens on one user's connection, another user's 4 tokens come soon, and both users'
// tokens come about as often as when two users share the load. Users are peers' uids, so connecting as two of them
// needs root. REEL_LONG runs every load, longer and with several batch sizes.
func TestOneUserHoldsUpNoOther(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to connect as two users")
	}
	if os.Getenv("REEL_LONG") == "" {
		holdsUpNoOther(t, "completions", 8, 12, 700*time.Millisecond)
		return
	}
	for load := range loads {
		for _, batch := range []int{1, 8, 64} {
			t.Run(fmt.Sprintf("%s on a batch of %d", load, batch), func(t *testing.T) {
				holdsUpNoOther(t, load, batch, 40, 10*time.Second)
			})
		}
	}
}

// holdsUpNoOther runs a load, first for the time settle as halves of two users, then as one user's while another
// user probes. It tries three times, since other programs on the machine delay tokens too.
func holdsUpNoOther(t *testing.T, load string, batch, probes int, settle time.Duration) {
	const all, other = 64, nobody
	g := serve(t, "--max-batch", fmt.Sprint(batch))
	if err := os.Chmod(g.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	request := func(id uint64) *protocol.Generate { return loads[load](g.limits.Context, id) }
	full := func() bool { return g.status().Requests.Running >= batch }
	for try := 1; ; try++ {
		halves := []*heavyUser{g.heavyUser(0, all/2, request), g.heavyUser(other, all/2, request)}
		g.eventually("the batch is full", full)
		time.Sleep(settle)
		base := max(halves[0].end(), halves[1].end())
		g.quiet()

		heavyUser := g.heavyUser(0, all, request)
		g.eventually("the batch is full", full)
		first, itl := g.probe(other, probes)
		theirs := heavyUser.end()
		g.quiet()
		t.Logf("two fair users: ITL P99 %v; beside %d requests: first token after %v at most, ITL P99 %v, theirs %v",
			base, all, first, itl, theirs)
		if first < 2*time.Second && max(itl, theirs) < 3*base {
			return
		}
		if try == 3 {
			t.Fatalf("a first token after %v, wants less than 2 s; ITL P99 %v and %v, wants less than 3 × %v",
				first, itl, theirs, base)
		}
	}
}
