package gateway

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// identified has a stand-in say an identity and a context: at once, or if late is set in its status only.
func identified(identity string, context int, late bool) func(any) {
	return func(reply any) {
		switch m := reply.(type) {
		case *protocol.Welcome:
			m.Limits.Context = context
			if !late {
				m.Identity = identity
			}
		case *protocol.Status:
			m.Identity = identity
		}
	}
}

// TestResumedElsewhere: of two generators the other one takes up a request if it has the same identity and
// context. Otherwise the request waits until its own is back.
func TestResumedElsewhere(t *testing.T) {
	const same, other = "0123456789abcdef0123456789abcdef", "f123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		first, second func(any)
		elsewhere     bool
	}{
		"equal":                 {identified(same, 512, false), identified(same, 512, false), true},
		"equal, known later":    {identified(same, 512, true), identified(same, 512, true), true},
		"another model":         {identified(same, 512, false), identified(other, 512, false), false},
		"unknown":               {identified(same, 512, false), identified("", 512, false), false},
		"was unknown":           {identified("", 512, false), identified(same, 512, false), false},
		"a longer context":      {identified(same, 512, false), identified(same, 1024, false), false},
		"another, and restarts": {identified("", 512, false), identified(other, 512, false), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &mortal{deaths: 1, Script: fakegen.Script{Spoil: c.first}}
			_, socket := fake(t, m.script())
			_, second := fake(t, fakegen.Script{Chat: true, Spoil: c.second, Answer: (&mortal{
				pieces: []string{"Once ", "more ", "elsewhere"}}).answerOnly})
			s := serve(t, Options{Generators: []Generator{{"fake", socket}, {"fake", second}}})
			first := s.backends.list[0].list[0]
			m.dying = func() {
				eventually(t, "the identity is asked for", func() bool { return !c.elsewhere || identityKnown(first) })
				_ = os.Remove(socket)
				if !c.elsewhere {
					go restartLate(t, first, socket, m.script())
				}
			}
			_, body := s.post("/v1/completions", `{"prompt":"x"}`)
			if got := strings.Contains(body, "elsewhere"); got != c.elsewhere || !strings.Contains(body, "Once more") {
				t.Error(body)
			}
		})
	}
}

// restartLate restarts a generator after it was looked for twice, so that the other one was offered what it had.
func restartLate(t *testing.T, b *backend, socket string, script fakegen.Script) {
	var seen time.Time
	for n := 0; n < 2 && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		if at := b.downSince(); at != seen {
			seen, n = at, n+1
		}
	}
	if t.Context().Err() == nil {
		fakeAt(t, socket, script)
	}
}

// downSince returns when a connection for a request has failed last.
func (b *backend) downSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down
}

// identityKnown reports whether b knows the identity of a connection that carries requests.
func identityKnown(b *backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.links, func(l *link) bool { return l.identity != "" })
}

// answerOnly answers without counting seeds.
func (m *mortal) answerOnly(*protocol.Generate) fakegen.Answer {
	return fakegen.Answer{Tokens: asPieces(m.pieces)}
}

// TestUnprovenIdentity: a generator that has not given all tokens that the client has says nothing about the identity of
// the one that gave them.
func TestUnprovenIdentity(t *testing.T) {
	const identity = "0123456789abcdef0123456789abcdef"
	var count atomic.Int32
	_, second := fake(t, fakegen.Script{Spoil: identified(identity, 512, false), Pieces: []string{"Once ", "more ", "elsewhere"}})
	text := []string{"Once ", "more ", "unto"}
	var s *server
	var socket string
	var script fakegen.Script
	script = fakegen.Script{Answer: func(*protocol.Generate) fakegen.Answer {
		n := int(count.Add(1))
		if n > 2 {
			return fakegen.Answer{Tokens: asPieces(text)}
		}
		_ = os.Remove(socket)
		go restartLate(t, s.backends.list[0].list[0], socket, script)
		return fakegen.Answer{Tokens: asPieces(text[:3-n]), Ending: fakegen.Drop}
	}, Spoil: func(reply any) {
		if w, ok := reply.(*protocol.Welcome); ok && count.Load() > 0 {
			w.Identity = identity
		}
	}}
	_, socket = fake(t, script)
	s = serve(t, Options{Generators: []Generator{{"m", socket}, {"m", second}}})
	if _, body := s.post("/v1/completions", `{"prompt":"x"}`); !strings.Contains(body, "Once more unto") {
		t.Error(body)
	}
}
