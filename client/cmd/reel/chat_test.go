package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// fakeTalk returns a conversation with a scripted generator.
func fakeTalk(t *testing.T, s fakegen.Script, out io.Writer) *talk {
	t.Helper()
	talk, _ := fakeTalkAt(t, s, out)
	return talk
}

// fakeTalkAt is fakeTalk that also returns the generator's listener.
func fakeTalkAt(t *testing.T, s fakegen.Script, out io.Writer) (*talk, net.Listener) {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel-test-") // t.TempDir includes the test's name and may be too long
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "g.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), os.RemoveAll(dir) })
	s.Chat = true
	go fakegen.New(s).Serve(l)
	a := &app{socket: path}
	c, err := a.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.samplingFlags(flags, strings.Clone)
	a.specialFlag(flags, "")
	talk := &talk{app: a, flags: flags, client: c, out: out, in: &typed{}, terminal: true, patience: 20 * time.Second,
		system: "S", messages: a.opening("S")}
	t.Cleanup(func() { talk.client.Close() })
	return talk, l
}

// typed is an input of given lines. It records the prompts and the history.
type typed struct {
	lines, prompts, remembered []string
}

func (t *typed) next(_ context.Context, prompt string) line {
	t.prompts = append(t.prompts, prompt)
	if len(t.lines) == 0 {
		return line{err: io.EOF}
	}
	l := line{text: t.lines[0]}
	t.lines = t.lines[1:]
	return l
}

func (t *typed) remember(text string) { t.remembered = append(t.remembered, text) }

// TestRefusedMessage: a refused message is left out of the conversation, which a person
// may continue.
func TestRefusedMessage(t *testing.T) {
	for _, code := range []string{protocol.CodePromptTooLong, protocol.CodeBusy, protocol.CodeDeviceFailed} {
		talk := fakeTalk(t, fakegen.Script{Ending: fakegen.Fail, Error: protocol.Errorf(code, "", "no")}, io.Discard)
		err := talk.ask(t.Context(), "long")
		var reported *client.Error
		if !errors.As(err, &reported) || reported.Code != code || len(talk.messages) != 1 || !talk.goesOn(err) {
			t.Errorf("%s: %v, %d messages", code, err, len(talk.messages))
		}
		talk.terminal = false
		if talk.goesOn(err) {
			t.Errorf("%s: a chat without a terminal goes on", code)
		}
	}
}

// TestStoppedAnswer: the text of an answer that Ctrl-C ended is kept.
func TestStoppedAnswer(t *testing.T) {
	var talk *talk
	stops := []bool{}
	out := writer(func(p []byte) (int, error) {
		stops = append(stops, talk.answer.stop())
		return len(p), nil
	})
	talk = fakeTalk(t, fakegen.Script{Ending: fakegen.Hang, Pieces: []string{"half"}}, out)
	if talk.answer.stop() {
		t.Error("stopped an answer before one began")
	}
	if err := talk.ask(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if n := len(talk.messages); n != 3 || !reflect.DeepEqual(talk.messages[2], client.Message{Role: "assistant", Content: "half"}) {
		t.Errorf("%+v", talk.messages)
	}
	if len(stops) != 2 || !stops[0] || stops[1] || talk.answer.stop() {
		t.Errorf("stopped %v", stops)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestAnswersDoNotShareMemory: two answers to one conversation don't overwrite each
// other's messages.
func TestAnswersDoNotShareMemory(t *testing.T) {
	var out bytes.Buffer
	talk := fakeTalk(t, fakegen.Script{}, &out)
	talk.messages = make([]client.Message, 1, 10)
	before := talk.messages
	if err := talk.ask(t.Context(), "x y"); err != nil || out.String() != "x y\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if again := before[:2]; again[1].Content != "" {
		t.Errorf("the slice before holds %+v", again)
	}
}

func TestLines(t *testing.T) {
	lines := readLines(strings.NewReader("a\n\nb"))
	for _, want := range []string{"a", "", "b"} {
		if l := <-lines; l.text != want || l.err != nil {
			t.Errorf("%+v, want %q", l, want)
		}
	}
	if l := <-lines; ignoreEOF(l.err) != nil {
		t.Error(l.err)
	}
	var usage usageError
	long := strings.NewReader(strings.Repeat("x", protocol.MaxFrame+1))
	if l := <-readLines(long); !errors.As(ignoreEOF(l.err), &usage) {
		t.Error(l.err)
	}
	if err := ignoreEOF(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
