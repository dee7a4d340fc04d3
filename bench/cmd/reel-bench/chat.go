package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"reel.internal/reel/bench"
)

// chatCommand returns the command that measures conversations.
func chatCommand() *cobra.Command {
	var s source
	var o bench.ChatOptions
	var out output
	cmd := &cobra.Command{
		Use:   "chat [flags] [-- flags of the generator]",
		Short: "Measure TTFT by turn of conversations, with and without the prefix cache",
		Long: `Measure TTFT by turn of conversations, with and without the prefix cache.

Each turn sends the whole conversation so far, with the server's own answers.
Messages are random common words, the same for each target; the first of each
conversation, or the system message, begins with a number of its own, so no
earlier measurement left any of it in a cache. Answers are greedy and go on past the end of
sequence. Reel is measured twice in turn: with its prefix cache, and with
"cache": "off". A peer (--peer) uses its cache as it does by default. Beside each
turn stands the time for its new message alone, without a cache, and below the
tables which turns take over 1.5 times that. A model without a chat template gets
the conversation as one text, and then peers are refused.

If answers with and without Reel's cache differ, a warning says so.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = progress(cmd)
			report, err := chat(cmd.Context(), &s, o)
			if err != nil {
				return err
			}
			return out.measured(cmd, report)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.flags(flags)
	flags.IntVar(&o.Turns, "turns", 10, "turns of each conversation")
	flags.IntVar(&o.Conversations, "conversations", 5, "measured conversations; one more warms up")
	flags.IntVar(&o.Words, "words", 16, "words of each message")
	flags.IntVar(&o.MaxTokens, "max-tokens", 16, "tokens of each answer")
	flags.IntVar(&o.System, "system", 0, "words of a system message that all conversations share")
	flags.DurationVar(&o.Pause, "pause", 100*time.Millisecond, "time between an answer's end and the next message")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the words")
	flags.StringArrayVar(&s.peers, "peer", nil, "`NAME=URL[#MODEL]` of a server with OpenAI's chat completions, "+
		"measured alternately with the generator; may be repeated")
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}

// chat opens the targets and measures them.
func chat(ctx context.Context, s *source, o bench.ChatOptions) (*bench.Chat, error) {
	open, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer open.close()
	if !open.first.Chat() && len(s.peers) > 0 {
		return nil, fmt.Errorf("%w: %s has no chat template, and a peer would answer in the form of its own",
			bench.ErrOptions, open.first.Model())
	}
	targets := bench.NewReelChat(open.first, open.first.Chat())
	for _, t := range open.targets[1:] {
		targets = append(targets, t.(bench.ChatTarget)) // a peer
	}
	o.Mark = strconv.FormatInt(time.Now().UnixNano(), 10)
	report, err := bench.MeasureChat(ctx, targets, o)
	if err != nil {
		return nil, err
	}
	status, err := open.status(ctx)
	if err != nil {
		return nil, err
	}
	report.Provenance = describe(status)
	return report, nil
}
