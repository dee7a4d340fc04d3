package server

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"reel/protocol"
)

// fakeChat joins the contents. A first message of the role "bad" is refused, one
// of the role "broken" fails.
type fakeChat struct {
	calls atomic.Int64
	most  atomic.Int64 // of the last call
}

func (c *fakeChat) Render(messages []protocol.Message, most int) (string, error) {
	c.calls.Add(1)
	c.most.Store(int64(most))
	switch messages[0].Role {
	case "bad":
		return "", protocol.Errorf(protocol.CodeBadRequest, "correct the messages", "no such role")
	case "broken":
		return "", errors.New("a fault")
	}
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Role + m.Content)
	}
	return b.String(), nil
}

// chats makes a server whose model has a chat template.
func chats(t *testing.T) (*fixture, *fakeChat) {
	f, chat := start(t, nil), &fakeChat{}
	m := f.model()
	m.Chat = chat
	f.SetReady(m)
	return f, chat
}

func conversation(id uint64, n int, messages ...protocol.Message) *protocol.Generate {
	return &protocol.Generate{ID: id, Messages: messages, MaxTokens: &n}
}

// TestMessages answers a conversation: the template's text is the prompt, taken
// as rendered.
func TestMessages(t *testing.T) {
	f, chat := chats(t)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); !w.Chat {
		t.Error("welcome does not tell of the template")
	}
	got := c.ask(conversation(1, 5, protocol.Message{Role: "u", Content: "a"}, protocol.Message{Role: "v", Content: "b"}))
	if got.text != "=uavb" || got.done == nil || got.done.Usage.PromptTokens != 5 {
		t.Errorf("%+v", got)
	}
	if chat.most.Load() != 2*testContext {
		t.Errorf("%d bytes of text at most, want the prompt's %d", chat.most.Load(), 2*testContext)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	f, chat := chats(t)
	c := f.client()
	long := strings.Repeat("x", testContext+1)
	for code, m := range map[string]*protocol.Generate{
		protocol.CodeBadRequest:    conversation(1, 1, protocol.Message{Role: "bad"}),
		protocol.CodeInternal:      conversation(1, 1, protocol.Message{Role: "broken"}),
		protocol.CodePromptTooLong: conversation(1, 1, protocol.Message{Role: "u", Content: long[:testContext]}), // as tokens
	} {
		c.send(m)
		c.wantError(code)
	}
	// What can be told before is not rendered.
	before := chat.calls.Load()
	prompt := "x"
	for _, m := range []*protocol.Generate{
		conversation(1, 1, protocol.Message{Content: "x"}),
		conversation(1, 1, slices.Repeat([]protocol.Message{{Role: "u"}}, protocol.MaxMessages+1)...),
		{ID: 1, Prompt: &prompt, Messages: []protocol.Message{{Role: "u"}}},
	} {
		c.send(m)
		c.wantError(protocol.CodeBadRequest)
	}
	c.send(conversation(1, 1, protocol.Message{Role: "u", Content: long}, protocol.Message{Role: "u", Content: long}))
	c.wantError(protocol.CodePromptTooLong)
	if chat.calls.Load() != before {
		t.Error("messages out of bounds were rendered")
	}
	f.works()
}

// TestNoTemplate serves a base model, which says that it has none.
func TestNoTemplate(t *testing.T) {
	f := ready(t, nil)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); w.Chat {
		t.Error("welcome tells of a template")
	}
	c.send(conversation(1, 1, protocol.Message{Role: "user", Content: "x"}))
	if e := c.wantError(protocol.CodeNoChatTemplate); !strings.Contains(e.Message, "base model") || e.ID == nil {
		t.Errorf("%v", e)
	}
	f.works()
}

// TestDecoderKnowsThePrompt: the completion's decoder is told what stands before
// it, the echo's that it begins a text.
func TestDecoderKnowsThePrompt(t *testing.T) {
	f := start(t, nil)
	m, after := f.model(), make(chan []int32, 2)
	m.NewDecoder = func(tokens []int32) Decoder {
		after <- slices.Clone(tokens)
		return &byteDecoder{}
	}
	f.SetReady(m)
	g := generate(1, "ab", 3)
	g.Echo = true
	f.client().ask(g)
	first, second := <-after, <-after
	if !slices.Equal(first, []int32{'a', 'b'}) || second != nil {
		t.Errorf("the completion comes after %v, the echo after %v", first, second)
	}
}
