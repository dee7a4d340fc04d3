package main

import (
	"context"

	"github.com/spf13/cobra"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
)

// latencyCommand returns the command that measures TTFT and ITL.
func latencyCommand() *cobra.Command {
	var s source
	var o bench.LatencyOptions
	var out output
	cmd := &cobra.Command{
		Use:   "latency [flags] [-- flags of the generator]",
		Short: "Measure TTFT and ITL by prompt length, one request at a time",
		Long: `Measure TTFT and ITL by prompt length, one request at a time.

Each prompt consists of random token ids from the middle of the vocabulary and
has exactly the given length. Completions are greedy and go on past the end of
sequence. Times are those of this client, including the socket. If the generator
holds back a token's text (half of a character), the token arrives with the one
that completes it. The first run of each length warms up and is counted apart.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := bench.CheckCache(o.Cache); err != nil {
				return err
			}
			o.Progress = progress(cmd)
			report, err := latency(cmd.Context(), &s, o)
			if err != nil {
				return err
			}
			if len(report.LeftOut) > 0 {
				cmd.PrintErrf("reel-bench: left out, since the context can't hold them: prompts of %d tokens\n",
					report.LeftOut)
			}
			return out.measured(cmd, report)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.flags(flags)
	flags.IntSliceVar(&o.Prompts, "prompts", nil,
		"prompt `lengths` in tokens (default 10, then 50 to 400 in steps of 50, as far as they fit)")
	flags.IntVar(&o.MaxTokens, "max-tokens", 32, "tokens of each completion")
	flags.IntVar(&o.Runs, "runs", 10, "measured runs of each length; one more warms up")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the prompts")
	flags.StringVar(&o.Cache, "cache", "off", cacheUsage)
	s.peerFlags(flags)
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}

// latency opens the targets and measures them.
func latency(ctx context.Context, s *source, o bench.LatencyOptions) (*bench.Latency, error) {
	return measured(ctx, s, func(open *session) (*bench.Latency, error) {
		return bench.MeasureLatency(ctx, open.targets, open.first.Limits(), o)
	}, func(report *bench.Latency, status *client.Status) {
		report.Provenance = describe(status)
		report.SetMemory(bench.MemoryOf(status))
		report.SetRates(status)
	})
}
