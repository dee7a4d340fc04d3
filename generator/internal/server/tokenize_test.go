package server

import (
	"strings"
	"testing"

	"reel.internal/reel/protocol"
)

// waiters returns the number of waiting texts.
func (q *textQueue) waiters() int {
	return q.users.waiters() + q.small.waiters() + q.large.waiters()
}

// One text of a user is tokenized at a time, and a bounded number of all users' texts.
func TestTokenizingIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		lift func(*bounds)
		most int64 // texts of one size that are tokenized at once
	}{
		"guards":            {func(*bounds) {}, 2},
		"userTexts lifted":  {func(b *bounds) { b.userTexts = 100 }, 2},
		"all users' lifted": {func(b *bounds) { b.largeTexts, b.smallTexts = 100, 100 }, 3},
		"both lifted":       {func(b *bounds) { b.userTexts, b.largeTexts, b.smallTexts = 100, 100, 100 }, 12},
	} {
		for size, bytes := range map[string]int{"small": 9, "large": 11} {
			t.Run(name+"/"+size, func(t *testing.T) {
				f, uid := readyAs(t, func(b *bounds) {
					b.largeTexts, b.smallTexts, b.largeText = 2, 2, 10
					c.lift(b)
				})
				f.tok.gate = make(chan struct{})
				var all []*testClient
				for user := range uint32(3) {
					uid.Store(user)
					for range 4 {
						client := f.client()
						client.send(&protocol.Tokenize{Text: strings.Repeat("a", bytes)})
						all = append(all, client)
					}
				}
				eventually(t, "each waits or is tokenized", func() bool {
					return int64(f.texts.waiters())+f.tok.running.Load() == 12
				})
				close(f.tok.gate)
				for _, client := range all {
					expect[protocol.Tokens](client)
				}
				if most := f.tok.most.Load(); most != c.most {
					t.Errorf("%d were tokenized at once, want %d", most, c.most)
				}
			})
		}
	}
}

// A small text does not wait for another user's large one, and a large text does not wait
// for all of another user's large ones.
func TestTextsAreSharedAmongUsers(t *testing.T) {
	f, uid := readyAs(t, func(b *bounds) { b.largeTexts, b.smallTexts, b.largeText = 1, 1, 10 })
	f.tok.gate = make(chan struct{})
	uid.Store(1)
	text := strings.Repeat("a", 20)
	var many []*testClient
	for range 6 {
		many = append(many, f.client())
	}
	for i, c := range many {
		c.send(&protocol.Tokenize{Text: text})
		eventually(t, "it waits, or is tokenized", func() bool {
			return f.texts.waiters() == i && f.tok.running.Load() == 1
		})
	}
	uid.Store(2)
	other := f.client()
	other.send(&protocol.Tokenize{Text: text})
	eventually(t, "it waits too", func() bool { return f.texts.waiters() == 6 })
	f.tok.gate <- struct{}{} // user 1's first
	f.tok.gate <- struct{}{} // then user 2's
	expect[protocol.Tokens](other)
	eventually(t, "user 1's second is tokenized", func() bool {
		return f.texts.waiters() == 4 && f.tok.running.Load() == 1
	})
	small := f.client()
	small.send(&protocol.Tokenize{Text: "a"})
	eventually(t, "the small text is tokenized", func() bool { return f.tok.running.Load() == 2 })
	close(f.tok.gate)
	for _, c := range append(many, small) {
		expect[protocol.Tokens](c)
	}
}

// A client that leaves while its text waits holds no permit afterwards.
func TestLeavingWhileATextWaits(t *testing.T) {
	f := ready(t, nil)
	f.tok.gate = make(chan struct{})
	first, second := f.client(), f.client()
	first.send(&protocol.Tokenize{Text: "a"})
	eventually(t, "it is tokenized", func() bool { return f.tok.running.Load() == 1 })
	second.send(&protocol.Tokenize{Text: "a"})
	eventually(t, "it waits", func() bool { return f.texts.waiters() == 1 })
	_ = second.conn.Close()
	close(f.tok.gate)
	expect[protocol.Tokens](first)
	eventually(t, "it has left", func() bool { return f.Status().Connections == 1 })
	if n := f.texts.users.holders() + f.texts.small.holders(); n != 0 {
		t.Errorf("%d users hold permits", n)
	}
	f.works()
}

// The tokenizer's own error and hint reach the client; any other error gets the hint about encoding.
func TestErrorsOfTheTokenizer(t *testing.T) {
	f := start(t, nil)
	f.SetReady(f.model())
	cl := f.client()
	for text, hint := range map[string]string{"[TOLD]": "send tokens", "!": "check the text's encoding"} {
		cl.send(generate(7, text, 1))
		if e := cl.wantError(protocol.CodeBadRequest); e.ID == nil || *e.ID != 7 || e.Hint != hint {
			t.Errorf("a prompt %q: %+v, want the hint %q", text, e, hint)
		}
		cl.send(&protocol.Tokenize{Text: text})
		if e := cl.wantError(protocol.CodeBadRequest); e.Hint != hint {
			t.Errorf("tokenizing %q: %+v, want the hint %q", text, e, hint)
		}
	}
}
