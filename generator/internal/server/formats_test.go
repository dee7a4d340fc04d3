package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// fakeFormats compiles a format to one that counts its Close. An expression "slow" compiles until ctx ends or gate is
// closed, "deaf" until ctx ends, which it ignores; "bad" is refused, and "broken" fails.
type fakeFormats struct {
	gate    chan struct{}
	running atomic.Int64 // calls of Compile
	most    atomic.Int64 // largest value of running
	open    atomic.Int64 // compiled and not closed
	calls   atomic.Value // text and control tokens of the last call of CompileCalls or CompileAfter
}

func (f *fakeFormats) CompileCalls(_ context.Context, _ engine.User, text string, control []int32) (engine.Format, error) {
	f.calls.Store(fmt.Sprint(text, control))
	f.open.Add(1)
	return fakeFormat{f}, nil
}

func (f *fakeFormats) CompileAfter(ctx context.Context, user engine.User, p protocol.Format, think string,
	control []int32) (engine.Format, error) {
	f.calls.Store(fmt.Sprint(think, control))
	return f.Compile(ctx, user, p)
}

func (f *fakeFormats) Compile(ctx context.Context, _ engine.User, p protocol.Format) (engine.Format, error) {
	n := f.running.Add(1)
	defer f.running.Add(-1)
	for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
	}
	switch p.Regex[:min(len(p.Regex), 4)] {
	case "slow":
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "deaf":
		<-ctx.Done()
	case "bad":
		return nil, protocol.Errorf(protocol.CodeBadFormat, "correct it", "it is bad")
	case "brok":
		return nil, errors.New("it is broken")
	}
	f.open.Add(1)
	return fakeFormat{f}, nil
}

type fakeFormat struct{ of *fakeFormats }

func (f fakeFormat) Next([]int32, int, func(engine.Mask)) {}
func (f fakeFormat) Close()                               { f.of.open.Add(-1) }

// withFormats starts a server whose model has formats. change adjusts its bounds.
func withFormats(t *testing.T, change func(*bounds)) (*fixture, *fakeFormats, *atomic.Uint32) {
	f, uid := newFixture(t, change), new(atomic.Uint32)
	f.as(uid)
	f.serve()
	formats := &fakeFormats{gate: make(chan struct{})}
	m := f.model()
	m.Formats = formats
	f.SetReady(m)
	return f, formats, uid
}

// regex asks for n tokens after "ab", of the form of an expression.
func regex(id uint64, n int, expression string) *protocol.Generate {
	g := generate(id, "ab", n)
	g.Format = &protocol.Format{Regex: expression}
	return g
}

// A compiled format goes to the engine, which closes it. A refusal of the format or of the engine closes it too, frees
// the request's id, and counts as a refusal.
func TestFormatIsCompiled(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	c := f.client()
	if got := c.ask(regex(1, 3, "good")); got.text != "aba" || got.done == nil || formats.open.Load() != 0 {
		t.Errorf("%+v, %d formats are open", got, formats.open.Load())
	}
	for expression, want := range map[string]string{
		"bad": protocol.CodeBadFormat, "broken": protocol.CodeInternal, "good": protocol.CodeBusy,
	} {
		f.engine.refuseNext(engine.ErrBusy)
		if got := c.ask(regex(1, 3, expression)); got.err == nil || got.err.Code != want || formats.open.Load() != 0 {
			t.Errorf("%s: %+v, %d formats are open", expression, got.err, formats.open.Load())
		}
	}
	f.engine.refuseNext(nil)
	f.works()
	if n := f.Status().Requests.Refused; n != 3 {
		t.Errorf("%d refused", n)
	}
}

// A format follows reasoning where the prompt ends within it, or the model may write some. It begins at once after
// reasoning that the template has ended, after a prompt, and without tags.
func TestFormatFollowsReasoning(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	chat := &fakeChat{answers: hermes}
	chat.answers.Control = map[int32]string{7: "</think>"}
	m := f.model()
	m.Chat, m.Formats = chat, formats
	f.SetReady(m)
	f.SetChat(chat, nil)
	raw := generate(1, "<think>", 2)
	raw.Special = new(true)
	for name, c := range map[string]struct {
		g    *protocol.Generate
		want string
	}{
		"within": {asking("hi<think>\n", 2), `{"begin":null,"end":{"token":7}}[7]`},
		"before": {asking("hi", 2), `{"begin":[{"text":"\u003cthink\u003e"}],"end":{"token":7}}[7]`},
		"after":  {asking("hi<think></think>\n", 2), ""}, "a prompt": {raw, ""},
	} {
		formats.calls.Store("")
		c.g.Format = &protocol.Format{Regex: "good"}
		got := f.client().ask(c.g)
		if text, _ := formats.calls.Load().(string); got.done == nil || text != c.want {
			t.Errorf("%s: %v, the reasoning is %s", name, got.err, text)
		}
	}
	if formats.open.Load() != 0 {
		t.Error("a format stays open")
	}
}

// A generator without formats says so, and what to do.
func TestNoFormats(t *testing.T) {
	f := ready(t, nil)
	got := f.client().ask(regex(1, 3, "good"))
	if got.err == nil || got.err.Code != protocol.CodeFormatUnavailable || !strings.Contains(got.err.Hint, "reel-format") {
		t.Errorf("%+v", got.err)
	}
}

// While a format is compiled, its connection is served. A cancel ends the compiling, and the request, as a cancel of
// any request does.
func TestCancelWhileCompiling(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	c := f.client()
	c.send(regex(1, 3, "slow"))
	eventually(t, "it is compiled", func() bool { return formats.running.Load() == 1 })
	c.send(regex(2, 3, "slow"))
	eventually(t, "it waits for its turn", func() bool { return f.compiles.waiters() == 1 })
	if got := c.ask(generate(3, "ab", 2)); got.text != "ab" {
		t.Errorf("%+v", got)
	}
	for _, id := range []uint64{2, 1} {
		c.send(&protocol.Cancel{ID: id})
		if done := expect[protocol.Done](c); done.ID != id || done.FinishReason != protocol.FinishCancelled ||
			done.Usage.CompletionTokens != 0 || done.Usage.PromptTokens != 2 {
			t.Errorf("%+v", done)
		}
	}
	if n := formats.running.Load() + int64(f.compiles.waiters()+f.compiles.holders()); n != 0 {
		t.Errorf("%d are compiled or wait", n)
	}
	if got := c.ask(regex(1, 3, "good")); got.text != "aba" {
		t.Errorf("%+v", got)
	}
	f.engine.allow(0)
	c.send(regex(1, 3, "deaf"))
	eventually(t, "it is compiled", func() bool { return formats.running.Load() == 1 })
	c.send(&protocol.Cancel{ID: 1}) // before there is a handle
	if done := expect[protocol.Done](c); done.FinishReason != protocol.FinishCancelled || formats.open.Load() != 0 {
		t.Errorf("%+v, %d formats are open", done, formats.open.Load())
	}
}

// A client that goes away while its format is compiled ends the compiling. So does the end of the server.
func TestCompilingEndsWithItsClient(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	c := f.client()
	c.send(regex(1, 3, "slow"))
	eventually(t, "it is compiled", func() bool { return formats.running.Load() == 1 })
	_ = c.conn.Close()
	eventually(t, "it ends", func() bool { return formats.running.Load()+int64(f.running.Load()) == 0 })

	c = f.client()
	c.send(regex(1, 3, "slow"))
	eventually(t, "it is compiled", func() bool { return formats.running.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a drain does not wait for a request whose format is compiled: %v", err)
	}
	f.stop()
	c.wantError(protocol.CodeShutdown)
	if n := formats.running.Load(); n != 0 {
		t.Errorf("%d are compiled after the server's end", n)
	}
}

// One format of a user is compiled at a time, and two of all users. So a user does not wait for all slow formats of
// another.
func TestCompilesAreSharedAmongUsers(t *testing.T) {
	for name, c := range map[string]struct {
		lift     func(*bounds)
		one, two int64 // formats compiled for one user, for two
	}{
		"guards":              {func(*bounds) {}, 1, 2},
		"userCompiles lifted": {func(b *bounds) { b.userCompiles = 100 }, 2, 2},
		"compiles lifted":     {func(b *bounds) { b.compiles = 100 }, 1, 2},
	} {
		f, formats, uid := withFormats(t, c.lift)
		client := f.client()
		for id := range uint64(8) {
			client.send(regex(id, 1, "slow"))
		}
		settled := func(n int) func() bool {
			return func() bool { return int(formats.running.Load())+f.compiles.waiters() == n }
		}
		eventually(t, "each waits or is compiled", settled(8))
		if n := formats.running.Load(); n != c.one {
			t.Errorf("%s: %d formats of one user are compiled, want %d", name, n, c.one)
		}
		uid.Store(2)
		other := f.client()
		other.send(regex(1, 1, "slow"))
		eventually(t, "each waits or is compiled", settled(9))
		if n := formats.running.Load(); n != c.two {
			t.Errorf("%s: %d formats of two users are compiled, want %d", name, n, c.two)
		}
		close(formats.gate)
		expect[protocol.Token](other)
		if got, err := client.collect(8); err != nil || len(got) != 8 {
			t.Errorf("%s: %d ended, %v", name, len(got), err)
		}
		f.stop()
	}
}

// A message with a format counts in its user's budget of frames until the format is compiled.
func TestFormatHoldsItsFrame(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	held := func() int {
		f.frameBudget.mu.Lock()
		defer f.frameBudget.mu.Unlock()
		return f.frameBudget.held[0]
	}
	c := f.client()
	g := regex(1, 1, "slow")
	g.Format = &protocol.Format{Regex: "slow" + strings.Repeat("x", 5000)}
	c.send(g)
	eventually(t, "it is compiled", func() bool { return formats.running.Load() == 1 })
	c.ask(generate(2, "ab", 1)) // the reader has gone on
	if n := held(); n < 5000 {
		t.Errorf("%d bytes are held while it is compiled", n)
	}
	close(formats.gate)
	expect[protocol.Token](c)
	if n := held(); n != 0 {
		t.Errorf("%d bytes are held after that", n)
	}
}
