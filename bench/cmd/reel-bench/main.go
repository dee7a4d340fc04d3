// Command reel-bench measures a running Reel generator.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel/bench"
	"reel/client"
	"reel/protocol"
)

// version is the release, which make sets.
var version = "unknown"

// Exit codes, those of reel.
const (
	exitFailed      = 1
	exitUsage       = 64
	exitNoGenerator = 69
	exitDenied      = 77
	exitConfig      = 78
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errUsage marks a mistake on the command line.
var errUsage = errors.New("usage")

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use: "reel-bench", Short: "Measure a running Reel generator", Version: version,
		SilenceErrors: true, SilenceUsage: true,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	root.AddCommand(latencyCommand())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	root.PrintErrf("reel-bench: %v\n", err)
	return exitCode(ctx, err)
}

// exitCode returns the code for err.
func exitCode(ctx context.Context, err error) int {
	var said *client.Error
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, errUsage), errors.Is(err, bench.ErrOptions):
		return exitUsage
	case errors.Is(err, client.ErrNoGenerator), errors.As(err, &said) && said.Code == protocol.CodeLoading:
		return exitNoGenerator
	case errors.Is(err, client.ErrDenied):
		return exitDenied
	case errors.Is(err, client.ErrConfig):
		return exitConfig
	}
	return exitFailed
}

// noWords refuses words that are no command.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s takes no words: %q: see reel-bench --help", errUsage, cmd.Name(), args)
}

// latencyCommand measures TTFT and ITL.
func latencyCommand() *cobra.Command {
	var dial client.Options
	var o bench.LatencyOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure TTFT and ITL by prompt length, one request at a time",
		Long: `Measure TTFT and ITL by prompt length, one request at a time.

Each prompt is random token ids from the middle of the vocabulary, exact in
length; completions are greedy and go on past the end of sequence. Times are
what this client sees, and include the socket. A token of which the generator
holds back the text (half of a character) comes with the one that completes it.
P50 and P99 are by nearest rank over all runs of a length.`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := latency(cmd.Context(), dial, o)
			if err != nil {
				return err
			}
			return write(cmd, report, asJSON)
		},
	}
	latencyFlags(cmd.Flags(), &dial, &o)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// latencyFlags adds what is measured, and where.
func latencyFlags(flags *pflag.FlagSet, dial *client.Options, o *bench.LatencyOptions) {
	flags.SortFlags = false
	flags.StringVar(&dial.Socket, "socket", "", "`path` of the generator's socket (default as for reel)")
	flags.DurationVar(&dial.Wait, "wait", 5*time.Second, "how long to wait for a generator")
	flags.IntSliceVar(&o.Prompts, "prompts", nil, "prompt `lengths` in tokens (default 10,50,100,200,400, those that fit)")
	flags.Lookup("prompts").DefValue = ""
	flags.IntVar(&o.MaxTokens, "max-tokens", 32, "tokens of each completion")
	flags.IntVar(&o.Runs, "runs", 5, "measured runs of each length; one more warms up")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the prompts")
}

// latency dials the generator and measures it.
func latency(ctx context.Context, dial client.Options, o bench.LatencyOptions) (*bench.Latency, error) {
	c, err := client.Dial(ctx, dial)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return bench.MeasureLatency(ctx, c, o)
}

// write prints report, and says on stderr what it lacks.
func write(cmd *cobra.Command, report *bench.Latency, asJSON bool) error {
	if len(report.LeftOut) > 0 {
		cmd.PrintErrf("reel-bench: left out, since the context can't hold them: prompts of %d tokens\n", report.LeftOut)
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	return report.WriteTable(cmd.OutOrStdout())
}
