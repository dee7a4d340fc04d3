package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// restart closes l, the listener at talk's socket, unless it is nil, and listens again after a moment with
// a generator of script s. Connections to the old generator stay.
func restart(t *testing.T, talk *talk, l net.Listener, s fakegen.Script) {
	t.Helper()
	if l != nil {
		_ = l.Close()
	}
	s.Chat = true
	started := time.AfterFunc(50*time.Millisecond, func() {
		again, err := net.Listen("unix", talk.socket)
		if err != nil {
			t.Error(err)
			return
		}
		go fakegen.New(s).Serve(again)
		<-t.Context().Done()
		_ = again.Close()
	})
	t.Cleanup(func() { started.Stop() })
}

// TestReconnect: a chat goes on with the generator's next start, with its conversation.
func TestReconnect(t *testing.T) {
	for name, s := range map[string]fakegen.Script{
		"lost":     {Ending: fakegen.Drop, Pieces: []string{}},
		"shutdown": {Ending: fakegen.Fail, Error: protocol.Errorf(protocol.CodeShutdown, "", "stopping"), Pieces: []string{}},
		"draining": {Ending: fakegen.Fail, Error: protocol.Errorf(protocol.CodeDraining, "", "stopping"), Pieces: []string{}},
		"amid":     {Ending: fakegen.Drop, Pieces: []string{"par"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			talk, l := fakeTalkAt(t, s, &out)
			talk.messages = append(talk.messages, client.Message{Role: "user", Content: "a"},
				client.Message{Role: "assistant", Content: "b"})
			restart(t, talk, l, fakegen.Script{Loading: 2, Model: "other"})
			if err := talk.runLines(t, "again"); err != nil {
				t.Fatal(err)
			}
			want := strings.Join(s.Pieces, "") + "again\n"
			if n := len(talk.messages); n != 5 || talk.messages[4].Content != "again" || out.String() != want {
				t.Errorf("%q, %+v", out.String(), talk.messages)
			}
		})
	}
}

// TestReconnectIsBounded: a wait ends after its bound or by Ctrl-C, and the chat goes on.
func TestReconnectIsBounded(t *testing.T) {
	talk, l := fakeTalkAt(t, fakegen.Script{Ending: fakegen.Drop, Pieces: []string{}}, io.Discard)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	talk.patience = 300 * time.Millisecond
	for range 2 { // the second with a client that is closed
		err := talk.runLines(t, "x")
		if !errors.Is(err, client.ErrNoGenerator) || !talk.goesOn(err) || len(talk.messages) != 1 {
			t.Errorf("%v, %d messages", err, len(talk.messages))
		}
	}
	talk.patience = 20 * time.Second
	stop := time.AfterFunc(100*time.Millisecond, func() { talk.app.answer.stop() })
	defer stop.Stop()
	if err := talk.runLines(t, "x"); !errors.Is(err, errCleared) || len(talk.messages) != 1 {
		t.Errorf("after Ctrl-C: %v", err)
	}
	restart(t, talk, nil, fakegen.Script{})
	if err := talk.runLines(t, "x"); err != nil || len(talk.messages) != 3 {
		t.Errorf("after the restart: %v, %d messages", err, len(talk.messages))
	}
}

// TestNoReconnectAmidOutput: without a terminal, an answer that was printed in part is not
// printed again.
func TestNoReconnectAmidOutput(t *testing.T) {
	var out bytes.Buffer
	talk := fakeTalk(t, fakegen.Script{Ending: fakegen.Drop, Pieces: []string{"par"}}, &out)
	talk.terminal = false
	if err := talk.runLines(t, "x"); !errors.Is(err, client.ErrConnectionLost) || out.String() != "par" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestReconnectToBaseModel: a generator that now serves a model without a chat template is
// named, and the chat goes on.
func TestReconnectToBaseModel(t *testing.T) {
	talk, l := fakeTalkAt(t, fakegen.Script{Ending: fakegen.Drop, Pieces: []string{}}, io.Discard)
	_ = l.Close()
	again, err := net.Listen("unix", talk.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	go fakegen.New(fakegen.Script{}).Serve(again)
	err = talk.runLines(t, "x")
	var reported *client.Error
	if !errors.As(err, &reported) || reported.Code != protocol.CodeNoChatTemplate || !talk.goesOn(err) {
		t.Errorf("%v", err)
	}
}

// TestFullContext: a conversation that is too long is shortened if the person agrees: by
// the oldest half of its messages, as often as necessary.
func TestFullContext(t *testing.T) {
	full := func(in *typed) *talk {
		talk := fakeTalk(t, fakegen.Script{Long: 5}, io.Discard)
		talk.in = in
		for _, text := range strings.Split("abcdefgh", "") {
			role := []string{"user", "assistant"}[(len(talk.messages)-1)%2]
			talk.messages = append(talk.messages, client.Message{Role: role, Content: text})
		}
		return talk
	}
	in := &typed{lines: []string{"y", "Yes "}}
	talk := full(in)
	if err := talk.ask(t.Context(), "last"); err != nil {
		t.Error(err)
	}
	text := ""
	for _, m := range talk.messages {
		text += m.Content + " "
	}
	if text != "S g h last last " {
		t.Errorf("the conversation is now %q", text)
	}
	if len(in.prompts) != 2 {
		t.Errorf("asked %q", in.prompts)
	}
	for _, answer := range []string{"n", "", "yikes"} {
		talk := full(&typed{lines: []string{answer}})
		err := talk.ask(t.Context(), "last")
		if !errors.As(err, new(printed)) || !talk.goesOn(err) || len(talk.messages) != 9 {
			t.Errorf("after %q: %v, %d messages", answer, err, len(talk.messages))
		}
	}
	in = &typed{lines: []string{"y"}}
	if talk := full(in); talk.ask(t.Context(), strings.Repeat("x", 20000)) == nil || len(in.prompts) != 0 {
		t.Errorf("a message that is too long by itself: asked %q", in.prompts)
	}
	talk = full(in)
	talk.terminal = false
	if err := talk.ask(t.Context(), "last"); err == nil || len(in.prompts) != 0 {
		t.Errorf("without a terminal: %v, asked %q", err, in.prompts)
	}
}
