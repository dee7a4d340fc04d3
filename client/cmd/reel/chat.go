package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const chatLong = `Talk with a model that was trained to chat. Each line of standard input is a
message. The conversation is kept here and sent whole with each message.

/new begins another conversation. /exit, Ctrl-D and the end of the input end
the chat. Ctrl-C ends an answer, or the chat if none is being printed. If the
input is not a terminal, the first error ends the chat too.`

// chatCommand returns the command for a conversation of several messages.
func (a *app) chatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Talk with the model: a conversation of several messages",
		Long:  chatLong,
		Args:  cobra.NoArgs,
		RunE:  a.chat,
	}
	cmd.Flags().SortFlags = false
	a.samplingFlags(cmd.Flags())
	cmd.Flags().BoolVar(&a.timings, "timings", false, "print TTFT, decode rate and total time of each answer on stderr")
	return cmd
}

func (a *app) chat(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if !c.Chat() {
		return protocol.Errorf(protocol.CodeNoChatTemplate,
			"begin a text for it to go on with: reel \"Once upon a time\"",
			"%s is a base model: it has no chat template", c.Model())
	}
	t := &talk{app: a, client: c, out: stdout().answers(), terminal: isTerminal(os.Stdin), messages: opening(a.system)}
	return t.run(ctx, readLines(os.Stdin))
}

// opening returns the first messages of a conversation: the system message, if any.
func opening(system string) []client.Message {
	if system == "" {
		return nil
	}
	return []client.Message{{Role: "system", Content: system}}
}

// talk is one conversation.
type talk struct {
	*app
	client   *client.Client
	out      io.Writer
	terminal bool // a person types the messages
	messages []client.Message
}

// run handles lines until the chat ends.
func (t *talk) run(ctx context.Context, lines <-chan line) error {
	for {
		if t.terminal {
			fmt.Fprint(stderr(), "> ")
		}
		select {
		case l := <-lines:
			done, err := t.take(ctx, l)
			if done || err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take handles one line. done is true at the end of the chat.
func (t *talk) take(ctx context.Context, l line) (done bool, err error) {
	switch text := strings.TrimSpace(l.text); {
	case l.err != nil:
		if t.terminal {
			fmt.Fprintln(stderr())
		}
		return true, ignoreEOF(l.err)
	case text == "/exit":
		return true, nil
	case text == "/new":
		t.messages = opening(t.system)
	case text != "":
		return false, t.ask(ctx, l.text)
	}
	return false, nil
}

// ask sends a message and prints the answer. A refused message is left out of the
// conversation; on a terminal the chat then goes on.
func (t *talk) ask(ctx context.Context, text string) error {
	asked := append(t.messages[:len(t.messages):len(t.messages)], client.Message{Role: "user", Content: text})
	answer, err := t.answered(ctx, asked)
	var reported *client.Error
	if errors.As(err, &reported) && t.terminal && !reported.Closes() {
		explain(err, t.socket).print()
		return nil
	}
	if err == nil {
		t.messages = append(asked, client.Message{Role: "assistant", Content: answer})
	}
	return err
}

// answered prints the answer to messages and returns its text, even if Ctrl-C ended it.
func (t *talk) answered(ctx context.Context, messages []client.Message) (string, error) {
	ctx, end := t.answer.begin(ctx)
	defer end()
	var text strings.Builder
	var done client.Done
	request := t.limited(t.request, t.client.Limits())
	request.Messages, request.Done = messages, &done
	for token, err := range t.client.Generate(ctx, request) {
		if err != nil && t.answer.stopped() && done.FinishReason != "" {
			break
		}
		if err != nil {
			return "", err
		}
		text.WriteString(token.Text)
		if _, err := io.WriteString(t.out, token.Text); err != nil {
			return "", closedPipe(err)
		}
	}
	if !strings.HasSuffix(text.String(), "\n") {
		if _, err := io.WriteString(t.out, "\n"); err != nil {
			return "", closedPipe(err)
		}
	}
	t.showTimings(done)
	t.tellCut(request, done, t.client.Limits(), ": /new begins another conversation")
	return text.String(), nil
}

// answer is the answer being printed, which Ctrl-C ends.
type answer struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil while none is being printed
	ended  bool               // by Ctrl-C
}

// begin returns a context that stop ends. Call end afterwards.
func (a *answer) begin(ctx context.Context) (answering context.Context, end func()) {
	answering, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel, a.ended = cancel, false
	return answering, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cancel = nil
		cancel()
	}
}

// stop ends the answer. It returns false if there is none or it was ended already.
func (a *answer) stop() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel == nil || a.ended {
		return false
	}
	a.ended = true
	a.cancel()
	return true
}

func (a *answer) stopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// line is a line of the input without its newline, or the error that ended the input.
type line struct {
	text string
	err  error
}

// readLines returns a channel of in's lines, followed by the error that ends it.
func readLines(in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, protocol.MaxFrame)
		for s.Scan() {
			lines <- line{text: s.Text()}
		}
		err := s.Err()
		if err == nil {
			err = io.EOF
		}
		lines <- line{err: err}
	}()
	return lines
}

// ignoreEOF returns nil for the end of the input, and a usage error for a line that is
// too long.
func ignoreEOF(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return usagef("the message is longer than %d bytes, the most that a frame holds", protocol.MaxFrame)
	}
	return err
}
