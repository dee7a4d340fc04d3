package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// generate is the root command: it streams a completion.
func (a *app) generate(cmd *cobra.Command, words []string) error {
	ctx := cmd.Context()
	if err := checkWords(cmd, words); err != nil {
		return err
	}
	if err := checkEmpty(cmd.Flags(), "json-schema", "regex", "choice", "tools", "file"); err != nil {
		return err
	}
	if err := a.readForm(); err != nil {
		return err
	}
	if err := a.readPrompt(ctx, words); err != nil {
		return err
	}
	if a.request.Prompt == "" && a.request.Tokens == nil {
		if len(words) == 0 && cmd.Flags().NFlag() == 0 && isTerminal(os.Stdin) {
			_, err := io.WriteString(stdout(), short)
			return closedPipe(err)
		}
		return usagef("the prompt is empty: give it as words, with -f FILE, or on standard input")
	}
	out, err := a.printer()
	if err != nil {
		return err
	}
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	a.converse(ctx, c)
	return a.stream(ctx, c, out)
}

// converse turns the prompt into a conversation if the model has a chat template, or if a
// flag needs one.
func (a *app) converse(ctx context.Context, c *client.Client) {
	r := &a.request
	switch formed := a.system != "" || len(r.Template) > 0 || r.Tools != ""; {
	case r.Tokens != nil:
	case a.raw:
		r.Special = a.special
	case !c.Chat() && !formed:
		r.Special = a.special
		tellRaw(ctx, c)
	default:
		r.Messages = append(a.opening(a.system), a.message("user", r.Prompt))
		r.Prompt, r.Reasoning = "", protocol.ReasoningApart
	}
}

// tellRaw says on a terminal that the prompt is not a message, because the chat template cannot
// be used.
func tellRaw(ctx context.Context, c *client.Client) {
	messages := stderr()
	if !messages.terminal {
		return
	}
	if cause := chatFailure(ctx, c); cause != "" {
		fmt.Fprintf(messages, "reel: sent as with --raw, since %s\n", oneLine(cause))
	}
}

// readPrompt sets the request's prompt, unless --tokens has set it.
func (a *app) readPrompt(ctx context.Context, words []string) error {
	if (a.system != "" || len(a.request.Template) > 0) && (a.raw || a.request.Tokens != nil) {
		return usagef("--system and --template need the model's chat template: leave out --raw and --tokens")
	}
	if a.request.Tokens != nil {
		if a.special != nil {
			return usagef("--special is for text: leave out --tokens")
		}
		if len(words) > 0 || a.file != "" {
			return usagef("--tokens is a prompt already: leave out the words and -f")
		}
		return nil
	}
	text, err := prompt(ctx, words, a.file)
	a.request.Prompt = text
	return err
}

// dial connects to the generator and shows the progress of its loading.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	return a.dialWith(ctx, client.Options{Spin: true})
}

// dialWith is dial with further options.
func (a *app) dialWith(ctx context.Context, o client.Options) (*client.Client, error) {
	p := startProgress(a.wait)
	defer p.clear()
	return client.Dial(ctx, client.Options{
		Socket: a.socket, Wait: a.wait, Spin: o.Spin, NoWake: o.NoWake, OnLoading: p.show, OnWait: p.retrying,
		OnPeer: func(peer client.Peer) {
			p.hide()
			a.stranger.meetAndPrint(peer)
		},
	})
}

// stream prints the completion's tokens as they come.
func (a *app) stream(ctx context.Context, c *client.Client, out printer) error {
	var done client.Done
	request := a.limited(a.request, c.Limits())
	request.Done = &done
	for token, err := range c.Generate(ctx, request) {
		if err == nil {
			err = out.token(token)
		} else {
			_ = out.end(done, err) // The error that ended the completion is the one to report.
		}
		if err != nil {
			a.showTimings(done)
			return closedPipe(err)
		}
	}
	err := closedPipe(out.end(done, nil))
	a.showTimings(done)
	a.tellCut(request, done, c.Limits(), "")
	return err
}

// showTimings prints the line of timings if --timings is set and they are known.
func (a *app) showTimings(done client.Done) {
	if a.timings && done.FinishReason != "" {
		fmt.Fprintln(stderr(), timings(done))
	}
}

// timings returns done's timings in one line.
func timings(done client.Done) string {
	line := fmt.Sprintf("ttft %.1f ms · %.1f tok/s · total %.1f ms · %d tokens · %s",
		done.Timing.TTFTMS, rate(done), done.Timing.TotalMS, done.Usage.CompletionTokens, oneLine(done.FinishReason))
	if u := done.Usage; u.CachedTokens > 0 {
		line += fmt.Sprintf(" · %d of %d prompt tokens cached", u.CachedTokens, u.PromptTokens)
	}
	if u := done.Usage; u.DraftedTokens > 0 {
		line += fmt.Sprintf(" · %d of %d drafts accepted", u.AcceptedTokens, u.DraftedTokens)
	}
	return line
}

// rate returns the decode rate in tokens per second: the tokens after the first, over
// the time after the first. For a single token it uses the total time.
func rate(done client.Done) float64 {
	tokens, ms := float64(done.Usage.CompletionTokens-1), done.Timing.TotalMS-done.Timing.TTFTMS
	if tokens < 1 {
		tokens, ms = tokens+1, done.Timing.TotalMS
	}
	if ms <= 0 {
		return 0
	}
	return tokens / ms * 1000
}
