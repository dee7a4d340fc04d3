//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
)

// run executes the command line and returns the exit code. Before it returns, the log has been
// written, or its reader has been stalled for a second.
func (p *program) run(args []string) int {
	defer p.stderr.Flush()
	out := &checkedWriter{w: p.stdout}
	p.stdout = out
	defer func() { p.stdout = out.w }()
	cmd := p.command()
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		err = out.err
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errLogged):
	default:
		_, _ = fmt.Fprintf(p.stderr, "reel-generator: %v\n", err)
	}
	return failure.ExitCode(err)
}

// checkedWriter keeps the first error of its writes. A command that prints a table looks at none, and has
// failed all the same if its output is lost.
type checkedWriter struct {
	w   io.Writer
	err error
}

// Write writes text. After an error it writes nothing.
func (c *checkedWriter) Write(text []byte) (n int, err error) {
	if c.err == nil {
		n, c.err = c.w.Write(text)
	}
	return n, c.err
}

// command returns the command line.
func (p *program) command() *cobra.Command {
	var o config.Options
	settings := config.Settings(&o)
	root := &cobra.Command{
		Use:   "reel-generator",
		Short: "Serve a language model to local processes over a Unix socket",
		Long: "reel-generator loads a language model and serves it to local processes over a Unix socket.\n" +
			"Each flag is also read from the environment, --max-batch as REEL_MAX_BATCH; the flag wins.\n" +
			"SIGTERM lets running requests finish for " + drainTime.String() + "; a second one ends those that\n" +
			"still run, with exit code 1.\n" +
			"SIGHUP has --settings read again: log level, graphs' budget and limits change as it runs.\n" +
			"Exit codes: 0 stopped, 1 failed, 64 usage, 75 a later start can succeed: the model's files changed, or\n" +
			"another generator that starts or drains holds the socket; 78 configuration.",
		Version:       versionText(),
		Args:          noArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := config.NewReader(p.env, cmd.Flags().Changed, settings)
			o, err := r.Read()
			if err != nil {
				return err
			}
			return p.serve(o, r)
		},
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	addSettings(root, settings)
	root.AddCommand(workerCommand(), tryDriverCommand(), p.checkCommand(), p.opsCommand(), p.planCommand(), p.perplexityCommand(),
		p.convertCommand(), p.doctorCommand(), p.vramCommand())
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	})
	return root
}
