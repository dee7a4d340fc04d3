package server

import (
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// templateChat renders with a template.
type templateChat struct{ *chat.Template }

func (templateChat) Answers() Answers { return Answers{} }

func (c templateChat) Render(t Conversation, maxBytes int) (marked.Text, error) {
	return c.Template.Render(chat.Request{Messages: t.Messages, Variables: t.Variables, MaxBytes: maxBytes})
}

// gatedChat returns the first message's content. Each call receives from gate first.
type gatedChat struct {
	gate    chan struct{}
	running atomic.Int64 // calls of Render
}

func (*gatedChat) Answers() Answers { return Answers{} }

func (c *gatedChat) Render(t Conversation, _ int) (marked.Text, error) {
	c.running.Add(1)
	defer c.running.Add(-1)
	<-c.gate
	return marked.Trusted(t.Messages[0].Content), nil
}

// One prompt of a user is rendered at a time, and two of all users. So a user does not
// wait for all slow prompts of another.
func TestRendersAreSharedAmongUsers(t *testing.T) {
	for name, c := range map[string]struct {
		lift              func(*bounds)
		one, two, waiting int // prompts rendered for one user, for two; waiting ones then
	}{
		"guards":             {func(*bounds) {}, 1, 2, 8},
		"userRenders lifted": {func(b *bounds) { b.userRenders = 100 }, 2, 2, 8},
		"renders lifted":     {func(b *bounds) { b.renders = 100 }, 1, 2, 7},
	} {
		t.Run(name, func(t *testing.T) {
			uid := new(atomic.Uint32)
			f, chat := newFixture(t, c.lift), &gatedChat{gate: make(chan struct{})}
			f.as(uid)
			f.serve()
			m := f.model()
			m.Chat = chat
			f.SetReady(m)
			send := func(user uint32) *testClient {
				uid.Store(user)
				client := f.client()
				client.send(conversation(1, 1, protocol.Message{Role: "user", Content: "x"}))
				return client
			}
			var all []*testClient
			for range 8 {
				all = append(all, send(1))
			}
			settled := func(n int) func() bool {
				return func() bool { return int(chat.running.Load())+f.renders.waiters() == n }
			}
			eventually(t, "each waits or is rendered", settled(8))
			if n := chat.running.Load(); n != int64(c.one) {
				t.Errorf("%d prompts of one user are rendered, want %d", n, c.one)
			}
			all = append(all, send(2))
			eventually(t, "each waits or is rendered", settled(9))
			if n := chat.running.Load(); n != int64(c.two) {
				t.Errorf("%d prompts of two users are rendered, want %d", n, c.two)
			}
			all = append(all, send(3))
			eventually(t, "each waits or is rendered", settled(10))
			if n := f.renders.waiters(); n != c.waiting {
				t.Errorf("%d wait, want %d", n, c.waiting)
			}
			close(chat.gate)
			for _, client := range all {
				if got, err := client.collect(1); err != nil || got[1] == nil || got[1].done == nil {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
}

// One user has eight prompts that exceed the time limit. Another user's prompt is rendered
// before the first of them has failed.
func TestSlowTemplate(t *testing.T) {
	if testing.Short() {
		t.Skip("a template's process may take more than 2 s to start under the race detector")
	}
	const source = "{% if messages[0].content == 'slow' %}" +
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}x"
	template, err := chat.New(chat.Source{Template: source}, func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "REEL_TEST_WORKER=1")
		return c
	})
	if err != nil {
		t.Fatal(err)
	}
	uid := new(atomic.Uint32)
	f := newFixture(t, nil)
	f.as(uid)
	f.serve()
	m := f.model()
	m.Chat = templateChat{template}
	f.SetReady(m)
	for i := range 8 {
		f.client().send(conversation(1, 1, protocol.Message{Role: "user", Content: "slow"}))
		eventually(t, "it waits or is rendered", func() bool {
			return f.renders.waiters() == i && f.renders.holders() == 1
		})
	}
	uid.Store(1)
	if got := f.client().ask(conversation(1, 1, protocol.Message{Role: "user", Content: "hello"})); got.done == nil {
		t.Error(got.err)
	}
	if n := f.counts.refused.Load(); n != 0 {
		t.Errorf("%d of the other user's prompts failed before", n)
	}
	template.Close() // the other prompts fail at once
}

// A user without earlier permits is next, before users with earlier ones.
func TestNextRenderIsANewUsers(t *testing.T) {
	s := newFairSemaphore(defaultBounds().renders, defaultBounds().userRenders)
	s.acquire(uid(1))
	s.acquire(uid(2))
	order := make(chan uint32, 20)
	for i, user := range []uint32{1, 1, 1, 2, 2, 2, 3} {
		go func() {
			s.acquire(uid(user))
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.release(uid(1))
	if user := <-order; user != 3 {
		t.Errorf("user %d is next, want 3", user)
	}
}
