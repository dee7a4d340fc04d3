package main

import (
	"github.com/spf13/cobra"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
)

// startupCommand returns the command that measures starts.
func startupCommand() *cobra.Command {
	s := source{needsOwn: true}
	var out output
	var runs int
	cmd := &cobra.Command{
		Use:   "startup [flags] [-- flags of the generator]",
		Short: "Measure starts: exec to welcome, to the first token, and captures per second",
		Args:  s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := bench.MeasureStartup(cmd.Context(), s.launch(), runs, describe, progress(cmd))
			if err != nil {
				return err
			}
			return out.measured(cmd, report)
		},
	}
	cmd.Flags().SortFlags = false
	s.flags(cmd.Flags())
	cmd.Flags().IntVar(&runs, "runs", 5, "measured starts; one more warms up")
	out.flags(cmd)
	return cmd
}

// rollCommand returns the command that measures a workload beyond the graph budget.
func rollCommand() *cobra.Command {
	s := source{needsOwn: true}
	var out output
	var o bench.RollOptions
	cmd := &cobra.Command{
		Use:   "roll [flags] [-- flags of the generator]",
		Short: "Measure a workload that outgrows the graph budget, roller on and off",
		Long: `Measure a workload that outgrows the graph budget, roller on and off.

Each phase has prompts of a few lengths, different from those of other phases. So
graphs captured at start do not fit them, and graphs that are rolled do not all
fit the budget. The same requests go to a generator with the roller on, then to
one with the roller off.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = progress(cmd)
			report, err := bench.MeasureRoll(cmd.Context(), s.launch(), o, describe)
			if err != nil {
				return err
			}
			return out.measured(cmd, report)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.flags(flags)
	flags.IntVar(&o.Phases, "phases", 5, "phases, each with other prompt lengths")
	flags.IntVar(&o.Lengths, "lengths", 6, "prompt lengths per phase")
	flags.IntVar(&o.Requests, "requests", 40, "requests per phase, one after the other")
	flags.IntVar(&o.Longest, "longest", 400, "longest prompt, in tokens")
	flags.IntVar(&o.MaxTokens, "max-tokens", 16, "tokens of each completion")
	flags.IntVar(&o.MaxGraphs, "max-graphs", 12, "graphs that may be live")
	flags.StringVar(&o.Captured, "precapture", "64,512", "prompt `lengths` whose graphs are captured at start")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the prompts")
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}

// opsCommand returns the command that measures kernels.
func opsCommand() *cobra.Command {
	s := source{needsOwn: true}
	var out output
	cmd := &cobra.Command{
		Use:   "ops [flags] [-- flags of reel-generator ops]",
		Short: "Measure each kernel at a model's shapes, against the device's limit",
		Args:  s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := s.launch()
			l.Args = l.Args[2:] // without --log-level: the subcommand ops logs nothing
			report, err := bench.MeasureOps(cmd.Context(), l, func(r *bench.OpsReport) bench.Provenance {
				return r.Describe(describe(&client.Status{}))
			})
			if err != nil {
				return err
			}
			return out.measured(cmd, report)
		},
	}
	cmd.Flags().SortFlags = false
	s.flags(cmd.Flags())
	out.flags(cmd)
	return cmd
}
