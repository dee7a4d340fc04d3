// Command reel-bench measures a Reel generator, running or started for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
	"reel.internal/reel/flagerror"
	"reel.internal/reel/protocol"
)

// version is the release; make sets it.
var version = "unknown"

// Exit codes. They mean what reel's do, but a busy generator gives 1, and SIGTERM gives 130 as SIGINT does.
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

// errUsage marks an error on the command line.
var errUsage = errors.New("usage")

// command returns the whole command tree.
func command() *cobra.Command {
	root := &cobra.Command{
		Use: "reel-bench", Short: "Measure a Reel generator, as its clients see it", Version: version,
		SilenceErrors: true, SilenceUsage: true,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, flagerror.Plain(err)) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(latencyCommand(), throughputCommand(), goodputCommand(), workloadCommand(), arrivalsCommand(), chatCommand(),
		speculateCommand(), startupCommand(), rollCommand(), opsCommand(), compareCommand(), showCommand(), limitsCommand(), reportCommand())
	return root
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := command()
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	root.PrintErrf("reel-bench: %v\n", err)
	return exitCode(ctx, err)
}

// exitCode returns the code for err.
func exitCode(ctx context.Context, err error) int {
	var reported *client.Error
	missingFile := errors.Is(err, fs.ErrNotExist) && !errors.Is(err, client.ErrNoGenerator)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.Is(err, errUsage), errors.Is(err, bench.ErrOptions), missingFile:
		return exitUsage
	case errors.Is(err, client.ErrNoGenerator), errors.As(err, &reported) && reported.Code == protocol.CodeLoading:
		return exitNoGenerator
	case errors.Is(err, client.ErrDenied):
		return exitDenied
	case errors.Is(err, client.ErrConfig):
		return exitConfig
	}
	return exitFailed
}
