package server

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// fakeChat joins roles and contents, each with its mark, and the value of the variable x. It refuses a first message of
// the role "bad", and fails for one of the role "broken". Its answers are set before it is served.
type fakeChat struct {
	calls    atomic.Int64
	maxBytes atomic.Int64 // of the last call
	answers  Answers
	shown    atomic.Value // the tools of the last call
}

// tools returns the tools of the last call.
func (c *fakeChat) tools() string { return c.shown.Load().(string) }

func (c *fakeChat) Answers() Answers { return c.answers }

func (c *fakeChat) Render(t Conversation, maxBytes int) (text marked.Text, _ error) {
	c.calls.Add(1)
	c.maxBytes.Store(int64(maxBytes))
	c.shown.Store(t.Tools)
	switch t.Messages[0].Role {
	case "bad":
		return nil, protocol.Errorf(protocol.CodeBadRequest, "correct the messages", "no such role")
	case "broken":
		return nil, errors.New("a fault")
	}
	for _, m := range t.Messages {
		text = text.Append(m.Role, false).Append(m.Content, !m.Special)
	}
	if x, is := t.Variables["x"].(string); is {
		text = text.Append(x, true)
	}
	return text, nil
}

// startChat starts a server of a model with a chat template.
func startChat(t *testing.T) (*fixture, *fakeChat) {
	f, chat := start(t, nil), &fakeChat{}
	m := f.model()
	m.Chat = chat
	f.SetReady(m)
	return f, chat
}

func conversation(id uint64, n int, messages ...protocol.Message) *protocol.Generate {
	return &protocol.Generate{ID: id, Messages: messages, MaxTokens: &n}
}

// A changed template serves the next requests of open connections too. Welcome says whether there is one.
func TestSetChat(t *testing.T) {
	f, _ := startChat(t)
	c := f.dial()
	defaults := protocol.DefaultSampling()
	for _, now := range []Chat{nil, &fakeChat{}, nil} {
		if !f.SetChat(now, &defaults) {
			t.Fatal("no model is served")
		}
		c.send(&protocol.Hello{Version: protocol.Version})
		if w := expect[protocol.Welcome](c); w.Chat != (now != nil) {
			t.Errorf("with %v welcome says %v", now, w.Chat)
		}
	}
	f.SetChat(&fakeChat{}, &defaults)
	c.send(conversation(1, 1, protocol.Message{Role: "user", Content: "Hi"}))
	expect[protocol.Token](c)
	expect[protocol.Done](c)
	if newServer(Options{}, defaultBounds()).SetChat(nil, nil) {
		t.Error("a server without a model has taken a template")
	}
}

// Welcome says whether the template shows tools whose calls are read, and whether the model reasons.
func TestWelcomeNamesSkills(t *testing.T) {
	f, _ := startChat(t)
	c := f.dial()
	defaults := protocol.DefaultSampling()
	for _, form := range []calls.Form{
		{}, {Tools: true}, {Tools: true, Family: calls.Tagged}, {Family: calls.Bare}, {Begin: "<think>", End: "</think>"},
		{Channels: true},
	} {
		f.SetChat(&fakeChat{answers: Answers{Form: form}}, &defaults)
		c.send(&protocol.Hello{Version: protocol.Version})
		w := expect[protocol.Welcome](c)
		if tools := form.Tools && form.Family == calls.Tagged; w.Tools != tools || w.Reasoning != (form.Begin != "" || form.Channels) {
			t.Errorf("%+v: welcome says %v, %v", form, w.Tools, w.Reasoning)
		}
	}
}

// Welcome and status have the identity as soon as it is known.
func TestIdentity(t *testing.T) {
	f := start(t, nil)
	m, known := f.model(), make(chan string, 1)
	m.Identity = func() string { return <-known }
	f.SetReady(m)
	c := f.dial()
	for _, identity := range []string{"", "abc"} {
		known <- identity
		c.send(&protocol.Hello{Version: protocol.Version})
		w := expect[protocol.Welcome](c)
		known <- identity
		if s := f.Status(); w.Identity != identity || s.Identity != identity {
			t.Errorf("welcome has %q, status %q, wants %q", w.Identity, s.Identity, identity)
		}
	}
}

// A conversation's rendered text is the prompt. It is encoded with its marks and without
// post-processor.
func TestMessages(t *testing.T) {
	f, chat := startChat(t)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); !w.Chat {
		t.Error("welcome does not announce the template")
	}
	got := c.ask(conversation(1, 5,
		protocol.Message{Role: "u", Content: "a"}, protocol.Message{Role: "v", Content: "b", Special: true}))
	if got.text != "=u#vb" || got.done == nil || got.done.Usage.PromptTokens != 5 {
		t.Errorf("%+v", got)
	}
	if chat.maxBytes.Load() != 2*testContext {
		t.Errorf("the template may render %d bytes, want %d as for a prompt", chat.maxBytes.Load(), 2*testContext)
	}
}

func TestRefusedMessages(t *testing.T) {
	f, chat := startChat(t)
	c := f.client()
	long := strings.Repeat("x", testContext+1)
	for code, m := range map[string]*protocol.Generate{
		protocol.CodeBadRequest: conversation(1, 1, protocol.Message{Role: "bad"}),
		protocol.CodeInternal:   conversation(1, 1, protocol.Message{Role: "broken"}),
		// As tokens this message is too long.
		protocol.CodePromptTooLong: conversation(1, 1, protocol.Message{Role: "u", Content: long[:testContext]}),
	} {
		c.send(m)
		c.wantError(code)
	}
	// Messages that break a bound are refused before they are rendered.
	before := chat.calls.Load()
	prompt := "x"
	for _, m := range []*protocol.Generate{
		conversation(1, 1, protocol.Message{Content: "x"}),
		conversation(1, 1, slices.Repeat([]protocol.Message{{Role: "u"}}, protocol.MaxMessages+1)...),
		{ID: 1, Prompt: &prompt, Messages: []protocol.Message{{Role: "u"}}},
		{ID: 1, Prompt: &prompt, Template: protocol.Variables{"x": 1}},
		{ID: 1, Messages: []protocol.Message{{Role: "u"}}, Template: protocol.Variables{"x-y": 1}},
		{ID: 1, Messages: []protocol.Message{{Role: "u"}}, Special: ptr(false)},
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

// A base model has no template, and says so.
func TestNoTemplate(t *testing.T) {
	f := ready(t, nil)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); w.Chat {
		t.Error("welcome announces a template")
	}
	c.send(conversation(1, 1, protocol.Message{Role: "user", Content: "x"}))
	if e := c.wantError(protocol.CodeNoChatTemplate); !strings.Contains(e.Message, "base model") || e.ID == nil {
		t.Errorf("%v", e)
	}
	f.works()
}

// Conversations have the model's sampling defaults. Fields of the request win, and prompts have
// the protocol's defaults.
func TestChatDefaults(t *testing.T) {
	f, chat := start(t, nil), &fakeChat{}
	m := f.model()
	m.Chat, m.ChatDefaults = chat, &protocol.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.25, MinP: 0.125, RepeatPenalty: 2}
	f.SetReady(m)
	messages := []protocol.Message{{Role: "u", Content: "a"}}
	c, prompt := f.client(), "a"
	for name, try := range map[string]struct {
		request protocol.Generate
		want    engine.Sampling
	}{
		"conversation": {protocol.Generate{Messages: messages},
			engine.Sampling{Temperature: 0.5, TopK: 3, TopP: 0.25, MinP: 0.125, RepeatPenalty: 2}},
		"fields": {protocol.Generate{Messages: messages, Temperature: ptr(0.0), TopK: ptr(0), RepeatPenalty: ptr(1.0)},
			engine.Sampling{TopP: 0.25, MinP: 0.125, RepeatPenalty: 1}},
		"prompt": {protocol.Generate{Prompt: &prompt},
			engine.Sampling{Temperature: protocol.DefaultTemperature, TopP: 1, RepeatPenalty: 1}},
	} {
		try.request.ID, try.request.Seed, try.request.MaxTokens, try.want.Seed = 1, ptr(uint64(7)), ptr(1), 7
		c.ask(&try.request)
		if got := f.engine.lastSampling(); !reflect.DeepEqual(got, try.want) {
			t.Errorf("%s: %+v, want %+v", name, got, try.want)
		}
	}
	if st := f.Status(); st.ChatDefaults == nil || *st.ChatDefaults != *m.ChatDefaults {
		t.Errorf("status has %+v", st.ChatDefaults)
	}
}

// A model with a template that does not compile refuses conversations and names the cause.
func TestTemplateThatDoesNotCompile(t *testing.T) {
	f := start(t, nil)
	m := f.model()
	m.ChatFailure = "odd comma"
	f.SetReady(m)
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	if w := expect[protocol.Welcome](c); w.Chat {
		t.Error("welcome announces a template")
	}
	c.send(conversation(1, 1, protocol.Message{Role: "user", Content: "x"}))
	if e := c.wantError(protocol.CodeNoChatTemplate); !strings.Contains(e.Message, "odd comma") || e.Hint == "" {
		t.Errorf("%v", e)
	}
	if st := f.Status(); st.ChatFailure != "odd comma" {
		t.Errorf("status says %q", st.ChatFailure)
	}
	f.works()
}

// The completion's decoder is given the prompt's tokens; the echo's decoder starts a text.
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
