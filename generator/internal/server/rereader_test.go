package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// forgetfulChat writes each message as <role>text, and leaves out what answers before the last message of a user
// have before "|". It gives control back to gate before each call, unless that is nil.
type forgetfulChat struct {
	answers Answers
	gate    chan struct{}
	calls   atomic.Int64
}

func (c *forgetfulChat) Answers() Answers { return c.answers }

func (c *forgetfulChat) Render(t Conversation, _ int) (text marked.Text, _ error) {
	c.calls.Add(1)
	if c.gate != nil {
		<-c.gate
	}
	text = text.Append(t.Tools, false)
	messages := t.Messages
	if style, is := t.Variables["style"].(string); is {
		text = text.Append(style, false)
	}
	for i, m := range t.Messages {
		if _, answer, thought := strings.Cut(m.Content, "|"); thought && m.Role == "assistant" && i < len(t.Messages)-1 {
			m.Content = answer
		}
		text = text.Append("<"+m.Role+">"+m.ToolCallID, false)
		if m.Reasoning != "" && messages[i+1].Role == "tool" {
			text = text.Append("("+m.Reasoning+")", false)
		}
		text = text.Append(strings.TrimSpace(m.Content), false)
		for _, call := range m.ToolCalls {
			text = text.Append(fmt.Sprintf("[%s %s %s]", call.ID, call.Name, call.Arguments), false)
		}
	}
	return text.Append("<assistant>", false), nil
}

// rereads returns what the engine is to reread.
func (f *fixture) rereads() []reread {
	f.engine.mu.Lock()
	defer f.engine.mu.Unlock()
	return slices.Clone(f.engine.rereads)
}

// settled waits until no answer waits, and returns what the engine is to reread.
func (f *fixture) settled() []reread {
	f.t.Helper()
	eventually(f.t, "answers are handed on", func() bool { return !f.rereading() })
	return f.rereads()
}

func (f *fixture) rereading() bool {
	f.Server.rereads.mu.Lock()
	defer f.Server.rereads.mu.Unlock()
	return f.Server.rereads.working
}

// startReread starts a server that rereads, with a chat template.
func startReread(t *testing.T, mode RereadMode) (*fixture, *forgetfulChat) {
	f, chat := start(t, nil), &forgetfulChat{}
	m := f.model()
	m.Chat, m.Reread = chat, mode
	f.SetReady(m)
	return f, chat
}

// user is a message of a user.
func user(text string) protocol.Message { return protocol.Message{Role: "user", Content: text} }

// After a conversation's answer the engine rereads what every next turn begins with: the history as the template
// renders it when another message follows, with the text that the client got.
func TestConversationIsReread(t *testing.T) {
	for name, c := range map[string]struct {
		question string
		change   func(*protocol.Generate)
		history  string
	}{
		"whole":    {"hi", nil, "=<user>hi<assistant>=<user>hi<"},
		"stripped": {"hi ", func(g *protocol.Generate) { g.Stop = []string{"r>"} }, "=<user>hi<assistant>=<use"},
		"thought":  {"a|b", func(g *protocol.Generate) { g.MaxTokens = new(10) }, "=<user>a|b<assistant>b"},
		"variables": {"hi", func(g *protocol.Generate) { g.Template = protocol.Variables{"style": "s"} },
			"=s<user>hi<assistant>=s<user>hi"},
		"echoed": {"hi", func(g *protocol.Generate) { g.Echo = true }, "=<user>hi<assistant>=<user>hi<"},
	} {
		f, _ := startReread(t, RereadChat)
		g := conversation(1, 10, user(c.question))
		if c.change != nil {
			c.change(g)
		}
		f.client().ask(g)
		got := f.settled()
		if len(got) != 1 || got[0].tokens != c.history+"<user>" {
			t.Errorf("%s: the engine rereads %+v, wants %q", name, got, c.history+"<user>")
		}
		f.stop()
	}
}

// The answer to a request with a name is reread for that name alone.
func TestAnswerOfANameIsItsOwn(t *testing.T) {
	f, _ := startReread(t, RereadChat)
	g, name := conversation(1, 10, user("hi")), "key"
	g.User = &name
	f.client().ask(g)
	want := engine.User{UID: uint32(os.Getuid()), Name: name}
	if got := f.settled(); len(got) != 1 || got[0].user != want {
		t.Errorf("the engine rereads %+v, wants that of %v", got, want)
	}
}

// The next turn has the answer as clients send it: the text, the reasoning, which this template shows only before the
// result of a call, and the calls. With a call its result comes next.
func TestAnswerWithCallsIsReread(t *testing.T) {
	const call = `<tool_call>{"name": "get", "arguments": {"a": 1}}</tool_call>`
	f, chat := startReread(t, RereadChat)
	chat.answers = hermes
	chat.answers.Form.Begin = "=" + toolGet + "<user>" // the completion repeats the prompt
	for name, c := range map[string]struct{ text, want string }{
		"an answer": {"T</think>hi.", "<user>T</think>hi.<assistant>hi<user>"},
		"a call": {"T</think>" + call + ".", "<user>T</think>" + call + ".<assistant>(T)[" + "%s" +
			` get {"a": 1}]<tool>%s`},
	} {
		g := asking(c.text, 128)
		g.Messages[0].Role, g.Stop = "user", []string{"."}
		got := f.client().ask(g)
		prompt := make([]int32, 0, 128)
		for _, b := range []byte("=" + toolGet + "<user>" + c.text + "<assistant>") {
			prompt = append(prompt, int32(b))
		}
		id := callIDs(g.Seed, prompt)(0)
		want := "=" + toolGet + strings.ReplaceAll(c.want, "%s", id)
		rereads := f.settled()
		if n := len(rereads); n == 0 || rereads[n-1].tokens != want {
			t.Errorf("%s: the engine rereads %+v, wants %q; %+v, %v", name, rereads, want, got.done, got.err)
		}
	}
}

// Only answers that ended are reread, of the kinds and with the use of the cache that the mode and the request say.
func TestWhichAnswersAreReread(t *testing.T) {
	chat := func() *protocol.Generate { return conversation(1, 3, user("hi")) }
	plain := func() *protocol.Generate { return generate(1, "abcd", 6) }
	cache := func(g *protocol.Generate, use string) *protocol.Generate { g.Cache = &use; return g }
	for name, c := range map[string]struct {
		mode    RereadMode
		request *protocol.Generate
		want    string
	}{
		"chat":             {RereadChat, chat(), "=<user>hi<assistant>=<u<user>"},
		"chat with cache":  {RereadChat, cache(chat(), protocol.CacheOn), "=<user>hi<assistant>=<u<user>"},
		"chat, read only":  {RereadChat, cache(chat(), protocol.CacheRead), ""},
		"chat, no cache":   {RereadChat, cache(chat(), protocol.CacheOff), ""},
		"plain":            {RereadChat, plain(), ""},
		"all, chat":        {RereadAll, chat(), "=<user>hi<assistant>=<u<user>"},
		"all, plain":       {RereadAll, plain(), "abcdabcdab"},
		"all, read only":   {RereadAll, cache(plain(), protocol.CacheRead), ""},
		"all, no cache":    {RereadAll, cache(plain(), protocol.CacheOff), ""},
		"off":              {RereadOff, chat(), ""},
		"off, plain":       {RereadOff, plain(), ""},
		"no mode":          {"", chat(), ""},
		"a refused prompt": {RereadAll, generate(1, "!", 6), ""},
	} {
		f, _ := startReread(t, c.mode)
		f.client().ask(c.request)
		got := f.settled()
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || got[0].tokens != c.want) {
			t.Errorf("%s: the engine rereads %+v, wants %q", name, got, c.want)
		}
		f.stop()
	}
}

// A cancelled answer, and one whose request failed, are not reread.
func TestUnfinishedAnswersAreNotReread(t *testing.T) {
	f, _ := startReread(t, RereadAll)
	f.engine.allow(1)
	c := f.client()
	c.send(conversation(1, 9, user("hi")))
	expect[protocol.Token](c)
	c.send(&protocol.Cancel{ID: 1})
	expect[protocol.Done](c)
	f.engine.allow(1)
	c.send(generate(2, "abc", 9))
	expect[protocol.Token](c)
	f.engine.stop(errors.New("a fault"))
	c.wantError(protocol.CodeInternal)
	if got := f.settled(); len(got) != 0 {
		t.Errorf("the engine rereads %+v", got)
	}
}

// While a request runs, no answer is rendered or tokenized.
func TestAnswersWaitForRequests(t *testing.T) {
	f, chat := startReread(t, RereadChat)
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "ab", 4))
	c.send(conversation(2, 2, user("hi")))
	f.awaitLive(2)
	f.engine.allow(2)
	f.awaitLive(1)
	eventually(t, "an answer is to be reread", f.rereading)
	time.Sleep(20 * time.Millisecond)
	if n := chat.calls.Load(); n != 1 || !f.rereading() {
		t.Errorf("the template ran %d times while a request runs, wants once", n)
	}
	f.engine.allow(-1)
	if got := f.settled(); len(got) != 1 || chat.calls.Load() != 3 {
		t.Errorf("the engine rereads %+v", got)
	}
}

// A request that comes while an answer is rendered or tokenized waits for that at most: what is left to do waits for
// the request.
func TestAnswersLetRequestsPass(t *testing.T) {
	for name, tokenizing := range map[string]bool{"rendering": false, "tokenizing": true} {
		f, chat := startReread(t, RereadChat)
		gate := make(chan struct{}, 2)
		if gate <- struct{}{}; tokenizing {
			f.tok.gate = gate
		} else {
			chat.gate = gate
		}
		f.client().ask(conversation(1, 2, user("hi")))
		calls := func() int64 { return chat.calls.Load() + f.tok.calls.Load() }
		began := int64(3)
		if tokenizing {
			began = 4
		}
		eventually(t, "the answer is worked on", func() bool { return calls() == began })
		f.engine.allow(0)
		c := f.client()
		c.send(&protocol.Generate{ID: 1, Tokens: []int32{1}, MaxTokens: new(1)})
		f.awaitLive(1)
		gate <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		if calls() != began {
			t.Errorf("%s: work went on while a request runs", name)
		}
		close(gate)
		f.engine.allow(-1)
		if got := f.settled(); len(got) != 1 {
			t.Errorf("%s: the engine rereads %+v", name, got)
		}
		f.stop()
	}
}

// Dropping the user's pages also drops the answers that wait, and the one that is being rendered.
func TestDroppedPagesAreNotReread(t *testing.T) {
	for name, c := range map[string]struct {
		scope string
		drop  bool
		want  int
	}{
		"list": {protocol.ScopeUser, false, 2},
		"drop": {protocol.ScopeUser, true, 0},
		"all":  {protocol.ScopeAll, true, 0},
	} {
		f, chat := startReread(t, RereadChat)
		f.engine.scope = c.scope
		f.engine.allow(0)
		chat.gate = make(chan struct{}, 2)
		chat.gate <- struct{}{}
		chat.gate <- struct{}{}
		client := f.client()
		client.send(conversation(1, 3, user("one")))
		client.send(conversation(2, 3, user("two")))
		f.awaitLive(2)
		f.engine.allow(-1)
		if _, err := client.collect(2); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an answer is rendered", func() bool { return chat.calls.Load() == 3 })
		client.send(&protocol.CacheRequest{Drop: c.drop})
		expect[protocol.Cached](client)
		close(chat.gate)
		if got := f.settled(); len(got) != c.want {
			t.Errorf("%s: the engine rereads %+v, wants %d texts", name, got, c.want)
		}
		f.stop()
	}
}

// A server that drains, closes or falls asleep drops the answers that wait, and ends the goroutine. Answers that wait
// keep no server awake.
func TestDrainingServerRereadsNothing(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"drains": func(f *fixture) { must(t, f.Drain(t.Context())) },
		"closes": func(f *fixture) { f.stop() },
		"sleeps": func(f *fixture) {
			eventually(f.t, "it is idle", func() bool { return f.Idle() > 0 })
			if !f.Sleep(1) {
				f.t.Error("it does not sleep while an answer is read again")
			}
		},
	} {
		f, chat := startReread(t, RereadAll)
		chat.gate = make(chan struct{}, 1)
		chat.gate <- struct{}{}
		c := f.client()
		c.ask(conversation(1, 3, user("hi")))
		eventually(t, "the answer is rendered", func() bool { return chat.calls.Load() == 2 })
		c.ask(generate(2, "abc", 3))
		end(f)
		close(chat.gate)
		if got := f.settled(); len(got) != 0 || chat.calls.Load() != 2 {
			t.Errorf("it %s: the engine rereads %+v after %d calls", name, got, chat.calls.Load())
		}
		f.stop()
	}
}

// Tokens without a row in the embedding never reach the engine.
func TestUnusableHistoryIsNotReread(t *testing.T) {
	f, _ := startReread(t, RereadAll)
	f.Server.reread(&answer{model: f.phase.model, tokens: []int32{1, testVocab}}, protocol.FinishStop)
	f.Server.reread(&answer{model: f.phase.model}, protocol.FinishStop)
	if got := f.settled(); len(got) != 0 {
		t.Errorf("the engine rereads %+v", got)
	}
}
