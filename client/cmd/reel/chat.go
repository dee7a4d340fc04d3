package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const chatLong = `Talk with a model that was trained to chat. Each line of standard input is a
message. The conversation is kept here and sent whole with each message.

On a terminal, lines are edited as in a shell, and a paste of several lines is one
message. Earlier messages come back with the arrow keys and, by a search, with Ctrl-R.
They are kept across chats in $XDG_STATE_HOME/reel/history, or otherwise
~/.local/state/reel/history, at most 1000 messages and 1 MiB, unless --no-history is
given. --continue keeps the conversation itself, in the same directory below chats,
and goes on with it another time. Commands:

` + commandHelp + `
If the input is not a terminal, each line is a message, except /new and /exit, and
the first error ends the chat.

Ctrl-D and the end of the input end the chat. Ctrl-C ends an answer or clears the
line; if there is neither, it ends the chat. If the generator restarts, the chat waits
up to a minute for it and goes on.`

// chatCommand returns the command for a conversation of several messages.
func (a *app) chatCommand() *cobra.Command {
	var noHistory bool
	var name string
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Talk with the model: a conversation of several messages",
		Long:  chatLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := &history{path: historyPath()}
			if noHistory {
				h.path = ""
			}
			return a.chat(cmd.Context(), cmd.Flags(), h, name)
		},
	}
	a.conversationFlags(cmd.Flags())
	a.specialFlag(cmd.Flags(), "as text")
	userFlag(cmd.Flags(), &a.request.User, "whose requests they are, within your uid")
	a.samplingFlags(cmd.Flags(), func(string) string { return "default: the model's" })
	cmd.Flags().BoolVar(&a.timings, "timings", false, "print TTFT, decode rate and total time of each answer on stderr")
	cmd.Flags().StringVar(&name, "continue", "", "keep the conversation as `NAME`, and go on with it if it was kept "+
		"before; without NAME the last one")
	cmd.Flags().Lookup("continue").NoOptDefVal = lastKept
	cmd.Flags().BoolVar(&noHistory, "no-history", false, "neither read nor write the history's file")
	return cmd
}

func (a *app) chat(ctx context.Context, flags *pflag.FlagSet, h *history, name string) error {
	c, err := a.dialChat(ctx)
	if err != nil {
		return err
	}
	t := &talk{
		app: a, flags: flags, client: c, out: stdout().answers(), screen: stdout(), terminal: isTerminal(os.Stdin),
		system: a.system, messages: a.opening(a.system), patience: reconnectTime,
	}
	defer func() { t.client.Close() }()
	if flags.Changed("continue") {
		if err := t.resume(name); err != nil {
			return err
		}
	}
	in, end, err := openInput(ctx, h)
	if err != nil {
		return err
	}
	defer end()
	t.in = in
	return t.run(ctx)
}

// dialChat connects to a generator whose model has a chat template.
func (a *app) dialChat(ctx context.Context) (*client.Client, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkChat(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// checkChat returns an error if c's model has no chat template, or one that does not compile.
func checkChat(ctx context.Context, c *client.Client) error {
	if c.Chat() {
		return nil
	}
	if cause := chatFailure(ctx, c); cause != "" {
		return protocol.Errorf(protocol.CodeNoChatTemplate,
			"begin a text for it to go on with: reel --raw \"Once upon a time\"; "+
				"the checkpoint's authors can correct the template",
			"%s has a chat template that cannot be used: %s", c.Model(), cause)
	}
	if c.Embeddings() != nil {
		return protocol.Errorf(protocol.CodeNoGeneration, "use reel embed, or serve a model that draws tokens",
			"%s is meant for embeddings and draws no tokens", c.Model())
	}
	return protocol.Errorf(protocol.CodeNoChatTemplate,
		"begin a text for it to go on with: reel \"Once upon a time\"; if it was trained to chat, give its template to "+
			"reel-generator with --chat-template FILE",
		"%s is a base model: it has no chat template", c.Model())
}

// chatFailure returns the reason why the model's chat template is not used, or "".
func chatFailure(ctx context.Context, c *client.Client) string {
	s, err := c.Status(ctx)
	if err != nil {
		return ""
	}
	return s.ChatFailure
}

// talk is one conversation.
type talk struct {
	*app
	flags    *pflag.FlagSet // of the command line, for /set
	client   *client.Client
	in       input
	out      io.Writer
	screen   *output // of out, for control sequences; nil: none
	terminal bool    // a person types the messages
	system   string  // the system message of this and further conversations
	messages []client.Message
	kept     *kept         // the file of --continue; nil: none
	patience time.Duration // bounds the wait for a generator that restarts
}

// errEnd ends the chat.
var errEnd = errors.New("the chat has ended")

// run handles lines until the chat ends.
func (t *talk) run(ctx context.Context) error {
	for {
		err := t.take(ctx, t.in.next(ctx, "> "))
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil && !t.goesOn(err):
			return err
		}
	}
}

// goesOn prints err and returns true if a person can go on after it.
func (t *talk) goesOn(err error) bool {
	var reported *client.Error
	var usage usageError
	var already printed
	switch {
	case errors.Is(err, errCleared), t.terminal && errors.As(err, &already):
		return true
	case !t.terminal, !errors.As(err, &reported) && !errors.As(err, &usage) && !lost(err):
		return false
	}
	f := explain(err, t.socket)
	if errors.As(err, &usage) {
		f.hint = "see /help"
	}
	f.print()
	return true
}

// take handles one line.
func (t *talk) take(ctx context.Context, l line) error {
	text := strings.TrimSpace(l.text)
	switch first, isQuoted := quoted(text); {
	case l.err != nil:
		if err := ignoreEOF(l.err); err != nil {
			return err
		}
		return errEnd
	case text == "":
		return nil
	case t.terminal && isQuoted:
		if l = readQuoted(ctx, t.in, first); l.err != nil || l.text == "" {
			return l.err
		}
		t.in.remember(l.text)
		return t.ask(ctx, l.text)
	}
	t.in.remember(l.text)
	if command, rest, is := t.command(l.text); is {
		return command.run(t, ctx, rest)
	}
	return t.ask(ctx, l.text)
}

// ask sends a message and prints the answer. A refused message is left out of the
// conversation.
func (t *talk) ask(ctx context.Context, text string) error {
	return t.pursue(ctx, append(t.messages[:len(t.messages):len(t.messages)], t.message("user", text)))
}

// pursue prints the answer to asked, which then is the conversation. If asked is too
// long, a person may drop its oldest messages.
func (t *talk) pursue(ctx context.Context, asked []client.Message) error {
	for {
		answer, err := t.answered(ctx, asked)
		if err == nil {
			t.messages = append(asked, answer)
			t.kept.write(t.client.Model(), t.messages)
			return nil
		}
		if asked, err = t.offerShorter(ctx, asked, err); err != nil {
			return err
		}
	}
}

// answered prints the answer to messages and returns it, even if Ctrl-C ended it.
// If the connection is lost, it connects again and asks once more.
func (t *talk) answered(ctx context.Context, messages []client.Message) (client.Message, error) {
	answering, end := t.answer.begin(ctx)
	defer end()
	answer, err := t.print(answering, messages)
	if text := answer.Content + answer.Reasoning; lost(err) && (t.terminal || text == "") {
		if text != "" {
			fmt.Fprintln(stderr())
		}
		if err = t.reconnect(answering); err == nil {
			answer, err = t.print(answering, messages)
		}
	}
	if err != nil && t.terminal && t.answer.stopped() && ctx.Err() == nil {
		fmt.Fprintln(stderr(), "reel: Ctrl-C ended the request: the message is not part of the conversation")
		err = errCleared
	}
	return answer, err
}

// print prints the answer to messages and returns it.
func (t *talk) print(ctx context.Context, messages []client.Message) (client.Message, error) {
	var text, reasoning strings.Builder
	var done client.Done
	answer := func() client.Message {
		return client.Message{Role: "assistant", Content: text.String(), Reasoning: reasoning.String()}
	}
	thinker := t.thinker(t.out, t.screen)
	request := t.limited(t.request, t.client.Limits())
	request.Messages, request.Done, request.Reasoning = messages, &done, protocol.ReasoningApart
	for token, err := range t.client.Generate(ctx, request) {
		if err != nil && t.answer.stopped() && (done.FinishReason != "" || text.Len()+reasoning.Len() > 0) {
			break
		}
		if err != nil {
			_ = thinker.end() // the error that ended the answer is the one to report
			return answer(), err
		}
		text.WriteString(token.Text)
		reasoning.WriteString(token.Reasoning)
		if err := t.show(&thinker, token); err != nil {
			return client.Message{}, closedPipe(err)
		}
	}
	if err := t.endLine(&thinker, text.String()); err != nil {
		return client.Message{}, closedPipe(err)
	}
	t.showTimings(done)
	t.tellCut(request, done, t.client.Limits(), ": /new begins another conversation")
	return answer(), nil
}

// show prints a token.
func (t *talk) show(thinker *thinker, token client.Token) error {
	if err := thinker.token(token); err != nil {
		return err
	}
	_, err := io.WriteString(t.out, token.Text)
	return err
}

// endLine ends the last line of an answer.
func (t *talk) endLine(thinker *thinker, text string) error {
	if thinker.open {
		return thinker.end()
	}
	if strings.HasSuffix(text, "\n") {
		return nil
	}
	_, err := io.WriteString(t.out, "\n")
	return err
}
