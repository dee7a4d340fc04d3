package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/bench"
)

// conversationFlags adds the flags of a workload of conversations.
func conversationFlags(flags *pflag.FlagSet, o *bench.ConversationOptions) {
	flags.IntVar(&o.Requests, "requests", 2000, "requests of the workload, which is repeated if it is too short")
	flags.Float64Var(&o.Turns, "turns", 2, "mean `number` of turns of a conversation")
	flags.IntVar(&o.Context, "context", 2048, "`tokens` of a prompt and its answer at most")
	flags.Float64Var(&o.Scale, "scale", 1, "`factor` of all lengths, for small models")
	flags.IntVar(&o.Users, "users", 0, "`names` that the conversations are of, in turn; 0: no names")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of lengths, prompts and times")
}

// workloadCommand returns the command that makes a workload file.
func workloadCommand() *cobra.Command {
	var o bench.ConversationOptions
	cmd := &cobra.Command{
		Use:   "workload [flags]",
		Short: "Print a workload of conversations as JSONL, for throughput --workload",
		Long: `Print a workload of conversations as JSONL, for throughput --workload.

Lengths are like those of the published ShareGPT conversations: messages have 161
tokens on average (log-normal, sigma 1.2), answers 338 (sigma 1), each 4 to 1024.
The prompt of a turn is the conversation so far with a new message. The same
flags give the same file.`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lines, err := bench.Conversations(o)
			if err != nil {
				return err
			}
			return bench.WriteLines(cmd.OutOrStdout(), lines)
		},
	}
	cmd.Flags().SortFlags = false
	conversationFlags(cmd.Flags(), &o)
	return cmd
}

// goodputCommand returns the command that measures goodput against the rate of requests.
func goodputCommand() *cobra.Command {
	var s source
	var o bench.LoadOptions
	var out output
	var slo string
	var lossless bool
	var conversations bench.ConversationOptions
	cmd := &cobra.Command{
		Use:   "goodput [flags] [-- flags of the generator]",
		Short: "Measure goodput against the rate of requests: open loops of conversations",
		Long: `Measure goodput against the rate of requests: open loops of conversations.

It is throughput with another workload (reel-bench workload prints it), with open
loops alone and with bounds. A request is good if it ended, its first token came
in time after the request was due, and so did each further token after the one
before. "On average" counts requests whose mean time per token was within itl
instead. --plot draws the curve.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.SLO, err = bench.ParseSLO(slo); err != nil {
				return err
			}
			if err := bench.CheckCache(o.Workload.Cache); err != nil {
				return err
			}
			if len(o.Rates) == 0 {
				return fmt.Errorf("%w: --rate: give at least one", errUsage)
			}
			if o.Workload.Lines, err = bench.Conversations(conversations); err != nil {
				return err
			}
			o.Seed, o.Progress = conversations.Seed, progress(cmd)
			report, err := throughput(cmd.Context(), &s, o)
			if err != nil {
				return err
			}
			if err := out.measured(cmd, report); err != nil || !lossless {
				return err
			}
			return report.Lossless()
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.flags(flags)
	flags.Float64SliceVar(&o.Rates, "rate", []float64{1, 2, 4, 8, 16}, "`requests` per second of each open loop")
	flags.StringVar(&slo, "slo", "ttft=200ms,itl=20ms", "`bounds` that a good request keeps")
	flags.DurationVar(&o.Duration, "duration", 20*time.Second, "measured time of each rate")
	flags.DurationVar(&o.Warmup, "warmup", 5*time.Second, "time of each rate before it is measured")
	flags.DurationVar(&o.Drain, "drain", 30*time.Second,
		"time for requests that have begun; slower ones are cut off and count as failed")
	conversationFlags(flags, &conversations)
	flags.StringVar(&o.Workload.Cache, "cache", "off", cacheUsage)
	flags.IntVar(&s.connections, "connections", openConnections, "`connections` that the requests take turns on")
	flags.BoolVar(&lossless, "lossless", false, "fail if a request failed")
	s.peerFlags(flags)
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}
