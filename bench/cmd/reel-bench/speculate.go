package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// speculateFlags are the flags of speculate, some still unparsed.
type speculateFlags struct {
	bench.SpeculateOptions
	draft, file string
}

// speculateCommand returns the command that measures guesses.
func speculateCommand() *cobra.Command {
	var s source
	var o speculateFlags
	var out output
	cmd := &cobra.Command{
		Use:   "speculate [flags] [-- flags of the generator]",
		Short: "Measure what guessed tokens gain, by drafter or by acceptance",
		Long: `Measure what guessed tokens gain, by drafter or by acceptance.

The same requests are made with drafts and without, in turn. Tokens and
log-probabilities are compared bit for bit; a difference is a fault of the
generator, and ends the command with 1 after its tables.

The generator's own drafter guesses, or with --acceptance an oracle: the command
sends the tokens that it got without drafts, each replaced by another one unless
it is right with that probability. For that the generator needs --draft given. A
generator that is started for the measurement has --draft lookup or given; a draft
model or an EAGLE-3 head is measured with "-- --draft DIR", and the time that its
passes take beside an oracle with "-- --draft given:DIR".

Random prompts say the same twice. The gain depends on the texts: --workload has
prompts of your own, as for throughput.`,
		Args: s.words,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(); err != nil {
				return err
			}
			o.Progress = progress(cmd)
			report, err := speculate(cmd.Context(), &s, o.SpeculateOptions)
			if err != nil {
				return err
			}
			if err := out.measured(cmd, report); err != nil {
				return err
			}
			return report.Err()
		},
	}
	cmd.Flags().SortFlags = false
	s.flags(cmd.Flags())
	o.flags(cmd.Flags())
	out.flags(cmd)
	out.plotFlag(cmd)
	return cmd
}

func (o *speculateFlags) flags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&o.Streams, "streams", []int{1}, "requests at once; a row each")
	flags.Float64SliceVar(&o.Acceptances, "acceptance", nil, "`probabilities` of an oracle's guesses to be right; a row each")
	flags.Lookup("acceptance").DefValue = ""
	flags.StringVar(&o.draft, "draft", protocol.DraftOn, "tokens that a step may guess: on, or 1 to 7")
	flags.IntVar(&o.Sets, "prompts", 6, "different prompts of each stream")
	flags.IntVar(&o.Rounds, "rounds", 2, "how often each is completed without drafts and with")
	flags.IntVar(&o.Prompt, "prompt-tokens", 250, "length of random prompts")
	flags.StringVar(&o.file, "workload", "", "JSONL `file` of prompts instead")
	flags.IntVar(&o.MaxTokens, "max-tokens", 128, "tokens of each completion")
	flags.Float64Var(&o.Temperature, "temperature", 0, "of sampling; 0 is greedy")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of prompts, of sampling and of the oracle")
}

// parse parses the remaining flags.
func (o *speculateFlags) parse() error {
	draft, e := protocol.ParseDraft(o.draft)
	if e != nil {
		return fmt.Errorf("%w: --draft %q: it must be on, or 1 to %d", errUsage, o.draft, protocol.MaxDrafts)
	}
	o.Draft = *draft
	if o.file == "" {
		return nil
	}
	var err error
	o.Lines, err = bench.ReadLines(o.file)
	return err
}

// speculate opens the generator and measures it.
func speculate(ctx context.Context, s *source, o bench.SpeculateOptions) (*bench.Speculate, error) {
	if s.own() {
		drafter := protocol.DrafterLookup
		if len(o.Acceptances) > 0 {
			drafter = protocol.DrafterGiven
		}
		s.args = append([]string{"--draft", drafter}, s.args...)
	}
	return measured(ctx, s, func(open *session) (*bench.Speculate, error) {
		return bench.MeasureSpeculate(ctx, open.first, o)
	}, func(report *bench.Speculate, status *client.Status) {
		report.Provenance = describe(status)
	})
}
