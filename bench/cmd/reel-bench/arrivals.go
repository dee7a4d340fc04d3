package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
)

// arrivalFlags are the flags of the command arrivals, some still unparsed.
type arrivalFlags struct {
	bench.ArrivalOptions
	bursts []string
}

// arrivalsCommand returns the command that measures what requests that arrive cost others, and wait for themselves.
func arrivalsCommand() *cobra.Command {
	var s source
	var o arrivalFlags
	var out output
	cmd := &cobra.Command{
		Use:   "arrivals [flags] [-- flags of the generator]",
		Short: "Measure what prompts that arrive cost running streams, and bursts of prompts",
		Long: `Measure what prompts that arrive cost running streams, and bursts of prompts.

--streams completions of --stream-tokens run, each followed by another, first alone,
then while prompts of --prompt-tokens arrive --rate times a second, at random times
(Poisson). The result is the time between the streams' tokens, and the time to the
first token of what arrives.

A burst (--burst 64x16) is a number of requests that are sent at once; the result is
the time to their first tokens.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range o.bursts {
				b, err := bench.ParseBurst(text)
				if err != nil {
					return err
				}
				o.Bursts = append(o.Bursts, b)
			}
			o.Progress = progress(cmd)
			report, err := arrivals(cmd.Context(), &s, o.ArrivalOptions)
			if err != nil {
				return err
			}
			return out.measured(cmd, report)
		},
	}
	cmd.Flags().SortFlags = false
	s.flags(cmd.Flags())
	o.flags(cmd.Flags())
	s.peerFlags(cmd.Flags())
	out.flags(cmd)
	return cmd
}

func (o *arrivalFlags) flags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Streams, "streams", 16, "completions that `run`")
	flags.IntVar(&o.Length, "stream-tokens", 0, "`length` of each (default 1000, or what the context holds)")
	flags.Float64Var(&o.Rate, "rate", 2, "`prompts` that arrive a second")
	flags.IntVar(&o.Prompt, "prompt-tokens", 2000, "`length` of each")
	flags.IntVar(&o.Output, "output-tokens", 8, "`length` of the completions of what arrives, and of bursts")
	flags.StringSliceVar(&o.bursts, "burst", []string{"64x16", "64x400"}, "`requests` at once, by tokens of each prompt")
	flags.IntVar(&o.Runs, "runs", 5, "measured `runs` of each burst")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time, alone and with prompts")
	flags.DurationVar(&o.Warmup, "warmup", 2*time.Second, "time before each that is not measured")
	flags.DurationVar(&o.Drain, "drain", 30*time.Second,
		"time for prompts that have arrived; slower ones are cut off and count as failed")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of prompts and times")
}

// arrivals opens the targets and measures them.
func arrivals(ctx context.Context, s *source, o bench.ArrivalOptions) (*bench.Arrivals, error) {
	most := o.Streams + openConnections
	for _, b := range o.Bursts {
		most = max(most, b.Requests)
	}
	s.connections = max(bench.Connections(most), openConnections)
	return measured(ctx, s, func(open *session) (*bench.Arrivals, error) {
		return bench.MeasureArrivals(ctx, open.targets, open.first.Limits(), o)
	}, func(report *bench.Arrivals, status *client.Status) {
		report.Provenance, report.Memory = describe(status), bench.MemoryOf(status)
	})
}
