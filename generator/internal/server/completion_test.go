package server

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

func ptr[T any](v T) *T { return &v }

func TestCompletion(t *testing.T) {
	f := ready(t, nil)
	got := f.client().ask(generate(1, "abc", 5))
	if got.text != "abcab" || got.done.FinishReason != protocol.FinishLength {
		t.Errorf("got %q, %+v", got.text, got.done)
	}
	for i, token := range got.tokens {
		if token.Index != i || token.Token != int32("abcab"[i]) || token.Logprob != nil || token.Top != nil {
			t.Errorf("token %d is %+v", i, token)
		}
	}
	if want := (protocol.Usage{PromptTokens: 3, CompletionTokens: 5}); got.done.Usage != want {
		t.Errorf("usage %+v, want %+v", got.done.Usage, want)
	}
	if got.done.Timing.TotalMS != 1 || got.done.Graphs.Eager != 5 {
		t.Errorf("done lacks the engine's timing and graphs: %+v", got.done)
	}
}

func TestWelcomeStatesLimits(t *testing.T) {
	f := ready(t, nil)
	c := f.dial()
	c.send(&protocol.Hello{Version: 1})
	want := protocol.Limits{Context: testContext, MaxBatch: 8, Vocab: testVocab, PromptBytes: 2 * testContext,
		Frame: 4 << 20, Requests: 64, Connections: 128, Queue: 512}
	if w := expect[protocol.Welcome](c); w.Limits != want || w.Model != "fake" || w.Version != 1 {
		t.Errorf("got %+v", w)
	}
}

// Each token is sent at once, before the engine makes another.
func TestTokenIsSentAtOnce(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "abc", 100))
	for i := range 3 {
		f.engine.allow(1)
		if token := expect[protocol.Token](c); token.Index != i {
			t.Fatalf("got %+v", token)
		}
	}
}

func TestEchoAndLogprobs(t *testing.T) {
	f := ready(t, nil)
	g := generate(1, "é!", 2)
	g.Echo, g.Logprobs = true, ptr(3)
	got := f.client().ask(g)
	texts := []string{"", "é", "!", "", "é"}
	if len(got.tokens) != len(texts) {
		t.Fatalf("got %d tokens", len(got.tokens))
	}
	for i, token := range got.tokens {
		if token.Index != i-3 || token.Text != texts[i] {
			t.Errorf("token %d is %+v, want text %q", i, token, texts[i])
		}
		if echoed := token.Index < 0; echoed != (token.Logprob == nil) || !echoed && len(token.Top) != 3 {
			t.Errorf("token %d has logprob %v and top %v", i, token.Logprob, token.Top)
		}
	}
	if top := got.tokens[4].Top[1]; top != (protocol.TopToken{Token: 'b', Text: "b", Logprob: -2}) {
		t.Errorf("the second alternative is %+v", top)
	}
}

func TestZeroLogprobs(t *testing.T) {
	g := generate(1, "ab", 1)
	g.Logprobs = ptr(0)
	token := ready(t, nil).client().ask(g).tokens[0]
	if token.Logprob == nil || *token.Logprob != -0.5 || token.Top != nil {
		t.Errorf("got %+v", token)
	}
}

// A held token keeps its own logprobs.
func TestHeldTokensKeepTheirLogprobs(t *testing.T) {
	g := generate(1, "aENx", 4)
	g.Stop, g.Logprobs = []string{"END"}, ptr(1)
	for i, token := range ready(t, nil).client().ask(g).tokens {
		if *token.Logprob != -0.5-float64(i) || token.Top[0].Logprob != -float64(i) {
			t.Errorf("token %d has logprob %v and top %v", i, *token.Logprob, token.Top)
		}
	}
}

func TestStopString(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(len("one END")) // no further step
	g := generate(1, "one END two", 100)
	g.Stop = []string{"three", "END"}
	got := f.client().ask(g)
	if got.text != "one " || got.done.FinishReason != protocol.FinishStop || got.done.Stop != "END" {
		t.Errorf("got %q, %+v", got.text, got.done)
	}
	if n := got.done.Usage.CompletionTokens; n != len("one END") || len(got.tokens) != n {
		t.Errorf("%d tokens are counted, %d sent", n, len(got.tokens))
	}
	if live, _ := f.engine.counts(); live != 0 {
		t.Errorf("the engine continues")
	}
}

func TestUndecidedTailIsSentAtTheEnd(t *testing.T) {
	g := generate(1, "abEN", 4)
	g.Stop = []string{"END"}
	got := ready(t, nil).client().ask(g)
	if got.text != "abEN" || got.done.FinishReason != protocol.FinishLength || got.done.Stop != "" || len(got.tokens) != 4 {
		t.Errorf("got %q, %+v", got.text, got.done)
	}
}

func TestCancel(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(2)
	c := f.client()
	c.send(&protocol.Cancel{ID: 9}) // not running: ignored
	c.send(generate(1, "ab", 100))
	expect[protocol.Token](c)
	expect[protocol.Token](c)
	c.send(&protocol.Cancel{ID: 1})
	done := expect[protocol.Done](c)
	if done.FinishReason != protocol.FinishCancelled || done.Usage.CompletionTokens != 2 {
		t.Errorf("got %+v", done)
	}
	c.send(&protocol.Cancel{ID: 1})
	c.send(&protocol.StatusRequest{})
	r := expect[protocol.Status](c).Requests
	if r.Cancelled != 1 || r.Running != 0 {
		t.Errorf("status counts %+v", r)
	}
}

func TestIDMayBeReused(t *testing.T) {
	c := ready(t, nil).client()
	for range 100 {
		if got := c.ask(generate(1, "ab", 1)); got.err != nil {
			t.Fatal(got.err)
		}
	}
}

// The id is free before the client can read the request's end.
func TestIDIsFreeBeforeTheEndIsSent(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "ab", 1))
	f.awaitLive(1)
	server := f.onlyConn()
	server.mu.Lock() // no id can be freed
	f.engine.allow(1)
	_ = c.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		msg, err := c.read()
		if err != nil {
			break
		}
		if _, ok := msg.(*protocol.Done); ok {
			t.Error("the end was sent first")
		}
	}
	server.mu.Unlock()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.collect(1); err != nil {
		t.Error(err)
	}
}

// onlyConn returns the server's side of the only connection.
func (f *fixture) onlyConn() *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.connections()[0]
}

func TestTokenize(t *testing.T) {
	c := ready(t, nil).client()
	c.send(&protocol.Tokenize{Text: "ab"})
	if got := expect[protocol.Tokens](c).Tokens; len(got) != 2 || got[1] != 'b' {
		t.Errorf("got %v", got)
	}
	c.send(&protocol.Tokenize{Text: "!"})
	c.wantError(protocol.CodeBadRequest)
}

// A text may have more tokens than an answer may hold.
func TestTokenizeTooMuch(t *testing.T) {
	f := start(t, nil)
	m := f.model()
	m.Limits.Context = protocol.MaxElements
	f.SetReady(m)
	c := f.client()
	c.send(&protocol.Tokenize{Text: strings.Repeat("a", protocol.MaxElements)})
	if n := len(expect[protocol.Tokens](c).Tokens); n != protocol.MaxElements {
		t.Errorf("got %d tokens", n)
	}
	c.send(&protocol.Tokenize{Text: strings.Repeat("a", protocol.MaxElements+1)})
	c.wantError(protocol.CodePromptTooLong)
}

func TestSeed(t *testing.T) {
	seeds := map[uint64]bool{}
	for range 3 {
		s := sampling((&protocol.Generate{}).Params())
		seeds[s.Seed] = true
	}
	if len(seeds) != 3 {
		t.Errorf("seeds repeat: %v", seeds)
	}
	g := protocol.Generate{
		Seed: ptr(uint64(0)), Temperature: ptr(0.5), TopK: ptr(3), TopP: ptr(0.25), MinP: ptr(0.125),
		RepeatPenalty: ptr(2.0), Logprobs: ptr(4), PresencePenalty: ptr(0.5), FrequencyPenalty: ptr(-1.5),
		LogitBias: []protocol.Bias{{Token: 7, Bias: -100}, {Token: 0, Bias: 0.25}},
	}
	want := engine.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.25, MinP: 0.125, RepeatPenalty: 2, Logprobs: 4,
		PresencePenalty: 0.5, FrequencyPenalty: -1.5, Biases: []engine.Bias{{Token: 7, Value: -100}, {Token: 0, Value: 0.25}}}
	if got := sampling(g.Params()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEngineErrors(t *testing.T) {
	for want, err := range map[string]error{
		protocol.CodeBusy:          engine.ErrBusy,
		protocol.CodeDraining:      engine.ErrDraining,
		protocol.CodePromptTooLong: fmt.Errorf("7 tokens: %w", engine.ErrTooLong),
		protocol.CodeBadRequest:    fmt.Errorf("%w: 1,025", engine.ErrTooManyBiases),
		protocol.CodeInternal:      errors.New("unforeseen"),
	} {
		f := ready(t, nil)
		f.engine.refuse = err
		c := f.client()
		if got := c.ask(generate(1, "ab", 1)); got.err == nil || got.err.Code != want || got.err.Hint == "" {
			t.Errorf("%v: got %+v", err, got)
		}
		c.send(&protocol.StatusRequest{})
		if r := expect[protocol.Status](c).Requests; r.Refused != 1 {
			t.Errorf("%v: status counts %+v", err, r)
		}
		f.stop()
	}
}

// When a request fails, its held tokens are not sent.
func TestFailureOfARunningRequest(t *testing.T) {
	for want, err := range map[string]error{
		protocol.CodeShutdown:     engine.ErrShutdown,
		protocol.CodeDeviceFailed: errors.Join(engine.ErrDevice, errors.New("a launch failed")),
		protocol.CodeInternal:     errors.New("unforeseen"),
	} {
		f := ready(t, nil)
		f.engine.allow(2)
		c := f.client()
		g := generate(1, "aE", 100)
		g.Stop = []string{"END"}
		c.send(g)
		expect[protocol.Token](c)
		eventually(t, "two steps have run", func() bool {
			f.engine.mu.Lock()
			defer f.engine.mu.Unlock()
			return f.engine.steps == 0
		})
		f.engine.stop(err)
		if e := c.wantError(want); e.ID == nil || *e.ID != 1 {
			t.Errorf("got %+v", e)
		}
		f.stop()
		if cause := strings.ReplaceAll(err.Error(), "\n", `\n`); !strings.Contains(f.log.String(), cause) {
			t.Errorf("the log lacks %q: %s", cause, f.log.String())
		}
	}
}

// After a NaN or a device failure the weights are verified. The client is told the result:
// changed weights, or the original failure.
func TestFailureCausedByChangedWeights(t *testing.T) {
	found := protocol.Errorf(protocol.CodeModelChanged, "again", "the weights are others")
	for _, c := range []struct {
		ended  error
		verify func() error
		want   string
		hint   string
	}{
		{engine.ErrNumeric, func() error { return found }, protocol.CodeModelChanged, "again"},
		{engine.ErrNumeric, func() error { return nil }, protocol.CodeInternal, "weights"},
		{engine.ErrNumeric, nil, protocol.CodeInternal, "weights"},
		{engine.ErrDevice, func() error { return found }, protocol.CodeModelChanged, "again"},
		{engine.ErrDevice, func() error { return nil }, protocol.CodeDeviceFailed, "repeat"},
		{engine.ErrShutdown, func() error { return found }, protocol.CodeShutdown, "again"},
		{engine.ErrFormat, func() error { return found }, protocol.CodeFormatFailed, "simplify"},
	} {
		f := start(t, nil)
		m := f.model()
		m.Verify = c.verify
		f.SetReady(m)
		f.engine.allow(1)
		cl := f.client()
		cl.send(generate(7, "ab", 100))
		expect[protocol.Token](cl)
		f.engine.stop(c.ended)
		if e := cl.wantError(c.want); e.ID == nil || *e.ID != 7 || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%v: got %+v", c.ended, e)
		}
		f.stop()
	}
}

func TestStatusOfMachineAndShape(t *testing.T) {
	f := start(t, nil)
	if st := f.Status(); st.Machine != (protocol.Machine{}) || st.Shape != (protocol.Shape{}) {
		t.Errorf("before the model is ready: %+v, %+v", st.Machine, st.Shape)
	}
	f.SetReady(f.model())
	if st := f.Status(); st.Machine != (protocol.Machine{Name: "none", MemoryUsed: 5}) || st.Shape.Layers != 3 {
		t.Errorf("got %+v, %+v", st.Machine, st.Shape)
	}
}

// TestCount: a request that wants its prompt's tokens counted is over at once, also while the engine takes no step, and
// its id is free.
func TestCount(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(0)
	c := f.client()
	for range 2 {
		g := generate(1, "é!", 2)
		g.Count = true
		got := c.ask(g)
		if len(got.tokens) > 0 || got.done.FinishReason != protocol.FinishLength ||
			got.done.Usage != (protocol.Usage{PromptTokens: 3}) {
			t.Errorf("got %+v, %+v", got.tokens, got.done)
		}
	}
	if live, _ := f.engine.counts(); live != 0 {
		t.Errorf("the engine has %d requests", live)
	}
	c.send(&protocol.StatusRequest{})
	if r := expect[protocol.Status](c).Requests; r.Finished != 2 || r.Running != 0 || r.Refused != 0 {
		t.Errorf("status counts %+v", r)
	}
	long := generate(2, strings.Repeat("x", testContext+1), 2)
	long.Count = true
	c.send(long)
	if e := expect[protocol.Error](c); e.Code != protocol.CodePromptTooLong {
		t.Errorf("got %+v", e)
	}
}
