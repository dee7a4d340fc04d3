package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// socket returns a path for a socket, short enough for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel-test-") // t.TempDir includes the test's name and may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "generator.sock")
}

// listen serves script at path until the test ends.
func listen(t *testing.T, path string, script fakegen.Script) *fakegen.Generator {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	g := fakegen.New(script)
	go g.Serve(l)
	return g
}

// connect serves script on a pipe and returns a client of it.
func connect(t *testing.T, script fakegen.Script) (*Client, *fakegen.Generator) {
	t.Helper()
	ours, theirs := net.Pipe()
	g := fakegen.New(script)
	go g.ServeConn(theirs)
	c, err := greet(t.Context(), ours, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, g
}

// collect runs req and returns its text and final error.
func collect(ctx context.Context, c *Client, req Request) (string, error) {
	var text strings.Builder
	for tok, err := range c.Generate(ctx, req) {
		if err != nil {
			return text.String(), err
		}
		text.WriteString(tok.Text)
	}
	return text.String(), nil
}

// received waits for a message of type M.
func received[M any](t *testing.T, g *fakegen.Generator) M {
	t.Helper()
	m, err := g.Wait(deadline(t), func(m any) bool { _, ok := m.(M); return ok })
	if err != nil {
		t.Fatal(err)
	}
	return m.(M)
}

// deadline returns a channel that closes before the test's own deadline.
func deadline(t *testing.T) <-chan struct{} {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx.Done()
}

func TestGenerate(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	var done Done
	text, err := collect(t.Context(), c, Request{Prompt: "to be or not", Done: &done})
	if err != nil || text != "to be or not" {
		t.Fatalf("text %q, error %v", text, err)
	}
	if done.FinishReason != protocol.FinishStop || done.Usage.CompletionTokens != 4 {
		t.Errorf("done is %+v", done)
	}
	if c.Model() != "fake" || c.Limits().Context != 512 {
		t.Errorf("model %q, limits %+v", c.Model(), c.Limits())
	}
}

func TestRequestCarriesEveryField(t *testing.T) {
	c, g := connect(t, fakegen.Script{})
	req := Request{
		Prompt: "p", MaxTokens: new(7), Temperature: new(0.5), TopK: new(3), TopP: new(0.9), MinP: new(0.1),
		RepeatPenalty: new(1.1), Seed: new(uint64(9)), Stop: []string{"a", "b"},
		Logprobs: new(2), Echo: true, IgnoreEOS: true,
	}
	if _, err := collect(t.Context(), c, req); err != nil {
		t.Fatal(err)
	}
	m := received[*protocol.Generate](t, g)
	got := fmt.Sprintln(*m.Prompt, *m.MaxTokens, *m.Temperature, *m.TopK, *m.TopP, *m.MinP,
		*m.RepeatPenalty, *m.Seed, m.Stop, *m.Logprobs, m.Echo, m.IgnoreEOS)
	if want := "p 7 0.5 3 0.9 0.1 1.1 9 [a b] 2 true true\n"; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

// TestMessages: a conversation is sent unchanged; invalid UTF-8 is not sent at all.
func TestMessages(t *testing.T) {
	c, g := connect(t, fakegen.Script{Chat: true})
	if !c.Chat() {
		t.Error("Chat is false for a model with a chat template")
	}
	messages := []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "to be"}}
	if text, err := collect(t.Context(), c, Request{Messages: messages}); text != "to be" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	got, err := g.Wait(nil, func(m any) bool { _, is := m.(*protocol.Generate); return is })
	m := got.(*protocol.Generate)
	if err != nil || m.Prompt != nil || m.Tokens != nil || !reflect.DeepEqual(m.Messages, messages) {
		t.Errorf("%+v, %v", got, err)
	}
	var e *Error
	_, err = collect(t.Context(), c, Request{Messages: []Message{{Role: "user", Content: "\xff"}}})
	if !errors.As(err, &e) || e.Code != protocol.CodeBadRequest {
		t.Error(err)
	}
	if base, _ := connect(t, fakegen.Script{}); base.Chat() {
		t.Error("Chat is true for a base model")
	}
}

func TestRequestLeavesDefaultsOut(t *testing.T) {
	c, g := connect(t, fakegen.Script{})
	if text, err := collect(t.Context(), c, Request{Tokens: []int32{5, 6}}); err != nil || text != "<5><6>" {
		t.Fatalf("text %q, error %v", text, err)
	}
	m := received[*protocol.Generate](t, g)
	if m.Prompt != nil || m.MaxTokens != nil || m.Temperature != nil || m.Seed != nil || m.Logprobs != nil {
		t.Errorf("fields that were not set were sent: %+v", m)
	}
}

func TestConcurrentRequestsAreNotMixed(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	var wg sync.WaitGroup
	for i := range 50 {
		want := strings.Repeat(fmt.Sprintf("%d ", i), 40)
		wg.Go(func() {
			if text, err := collect(t.Context(), c, Request{Prompt: want}); err != nil || text != want {
				t.Errorf("request %d: %q, %v", i, text, err)
			}
		})
	}
	wg.Wait()
}

func TestSlowLoopDelaysNoOther(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	slow := strings.Repeat("slow ", 2000)
	var text strings.Builder
	for tok, err := range c.Generate(t.Context(), Request{Prompt: slow, MaxTokens: new(2000)}) {
		if err != nil {
			t.Fatal(err)
		}
		if text.Len() == 0 {
			// This loop blocks while another request runs from beginning to end.
			if other, err := collect(t.Context(), c, Request{Prompt: "quick one"}); err != nil || other != "quick one" {
				t.Fatalf("the other loop got %q, %v", other, err)
			}
		}
		text.WriteString(tok.Text)
	}
	if text.String() != slow {
		t.Errorf("the slow loop lost text: %d bytes of %d", text.Len(), len(slow))
	}
}

func TestUnknownMessageTypeIsSkipped(t *testing.T) {
	c, generator := raw(t)
	go func() {
		_, _ = protocol.ReadFrame(generator, 0, nil)
		_, _ = generator.Write([]byte("\x00\x00\x00\x0b\x81\xa4type\xa4news")) // {type: news}
		sendRaw(generator, &protocol.Done{ID: 1, FinishReason: protocol.FinishStop})
	}()
	if _, err := collect(t.Context(), c, Request{Prompt: "one"}); err != nil {
		t.Error(err)
	}
}

func TestAbandonedQuestionConsumesItsAnswer(t *testing.T) {
	c, generator := raw(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = protocol.ReadFrame(generator, 0, nil)
		cancel() // From here on only the second question has a caller.
		_, _ = protocol.ReadFrame(generator, 0, nil)
		sendRaw(generator, &protocol.Tokens{Tokens: []int32{1}})
		sendRaw(generator, &protocol.Tokens{Tokens: []int32{2}})
	}()
	if _, err := c.Tokenize(ctx, "first"); !errors.Is(err, context.Canceled) {
		t.Fatalf("first: %v", err)
	}
	if ids, err := c.Tokenize(t.Context(), "second"); err != nil || len(ids) != 1 || ids[0] != 2 {
		t.Errorf("second: %v, %v", ids, err)
	}
}

func TestStatusAndTokenize(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	status, err := c.Status(t.Context())
	if err != nil || status.State != protocol.StateReady || status.KV.Pages != 256 {
		t.Errorf("status %+v, %v", status, err)
	}
	ids, err := c.Tokenize(t.Context(), "AB")
	if err != nil || fmt.Sprint(ids) != "[65 66]" {
		t.Errorf("ids %v, %v", ids, err)
	}
}

func TestTokenizeError(t *testing.T) {
	long := protocol.Errorf(protocol.CodePromptTooLong, "", "too long")
	c, _ := connect(t, fakegen.Script{Error: long})
	_, err := c.Tokenize(t.Context(), "AB")
	var reported *Error
	if !errors.As(err, &reported) || reported.Code != protocol.CodePromptTooLong {
		t.Errorf("got %v", err)
	}
}
