package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
)

// openConnections is the number of connections for an open loop. It is so large that the
// generator's queue bounds the requests in flight, not the connections.
const openConnections = 12

// loadFlags are the flags of a load, some still unparsed.
type loadFlags struct {
	bench.LoadOptions
	prompt, output, file, slo string
}

// throughputCommand returns the command that measures closed and open loops.
func throughputCommand() *cobra.Command {
	var s source
	var o loadFlags
	var out output
	cmd := &cobra.Command{
		Use:   "throughput [flags] [-- flags of the generator]",
		Short: "Measure rates and latencies under load, in closed and open loops",
		Long: `Measure rates and latencies under load.

A closed loop has --concurrency clients, each of which sends a request once the
previous one ended. An open loop (--rate) sends that many requests per second, at
random times (Poisson) drawn in advance, regardless of earlier requests; times
count from when a request was due. Several values make a sweep; --plot draws
latency against throughput.

A workload file (--workload) has one JSON object per line: {"prompt": "…"} or
{"tokens": [1, 2]} or {"prompt_tokens": 128}, with "output_tokens": 64; "user"
names the sender, and prompts of one "conversation": 1 begin alike.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(cmd.Flags()); err != nil {
				return err
			}
			o.Progress = progress(cmd)
			if len(o.Rates) > 0 {
				s.connections = openConnections
			}
			report, err := throughput(cmd.Context(), &s, o.LoadOptions)
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
	out.plotFlag(cmd)
	return cmd
}

func (o *loadFlags) flags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&o.Concurrency, "concurrency", []int{1, 2, 4, 8, 16, 32, 64}, "`clients` of each closed loop")
	flags.Float64SliceVar(&o.Rates, "rate", nil,
		"`requests` per second of each open loop; without --concurrency there are no closed loops")
	flags.Lookup("rate").DefValue = ""
	flags.DurationVar(&o.Duration, "duration", 5*time.Second, "measured time of each level")
	flags.DurationVar(&o.Warmup, "warmup", time.Second, "time of each level before it is measured")
	flags.DurationVar(&o.Drain, "drain", 30*time.Second,
		"time for requests that have begun; slower ones are cut off and count as failed")
	flags.StringVar(&o.prompt, "prompt-tokens", "128", "prompt `length`, or a range such as 16-256")
	flags.StringVar(&o.output, "output-tokens", "64", "completion `length`, or a range")
	flags.StringVar(&o.file, "workload", "", "JSONL `file` of prompts and lengths instead")
	flags.StringVar(&o.slo, "slo", "", "count requests within `bounds` such as ttft=200ms,itl=50ms as goodput")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of prompts and times")
	flags.StringVar(&o.Workload.Cache, "cache", "off", cacheUsage)
}

// parse parses the remaining flags.
func (o *loadFlags) parse(flags *pflag.FlagSet) (err error) {
	if flags.Changed("rate") && !flags.Changed("concurrency") {
		o.Concurrency = nil
	}
	if err := bench.CheckCache(o.Workload.Cache); err != nil {
		return err
	}
	if o.slo != "" {
		if o.SLO, err = bench.ParseSLO(o.slo); err != nil {
			return err
		}
	}
	if o.file != "" {
		o.Workload.Lines, err = bench.ReadLines(o.file)
		return err
	}
	if o.Workload.Prompt, err = bench.ParseLengths(o.prompt); err != nil {
		return err
	}
	o.Workload.Output, err = bench.ParseLengths(o.output)
	return err
}

// throughput opens the targets and measures them.
func throughput(ctx context.Context, s *source, o bench.LoadOptions) (*bench.Throughput, error) {
	s.connections = max(s.connections, bench.Connections(slices.Max(append(o.Concurrency, 1))))
	return measured(ctx, s, func(open *session) (*bench.Throughput, error) {
		return bench.MeasureThroughput(ctx, open.targets, open.first.Limits(), o)
	}, func(report *bench.Throughput, status *client.Status) {
		report.Provenance, report.Memory = describe(status), bench.MemoryOf(status)
	})
}
