//go:build linux

package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"reel/generator/internal/config"
	"reel/generator/internal/hardware"
	"reel/generator/internal/logging"
	"reel/protocol"
)

// errLogged marks an error that has been written to stderr.
var errLogged = errors.New("generator")

// command returns the command line.
func (p *program) command() *cobra.Command {
	var o config.Options
	settings := config.Settings(&o)
	root := &cobra.Command{
		Use:   "reel-generator",
		Short: "Serve a language model to local processes over a Unix socket",
		Long: "reel-generator loads a language model and serves it to local processes over a Unix socket.\n" +
			"Each flag is also read from the environment, --max-batch as REEL_MAX_BATCH; the flag wins.\n" +
			"SIGTERM lets running requests finish for " + drainTime.String() + "; a second one stops at once.\n" +
			"SIGHUP has --settings read again: log level, graphs' budget and limits change as it runs.\n" +
			"Exit codes: 0 stopped, 1 failed, 64 usage, 75 the model's files changed, 78 configuration.",
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
	root.AddCommand(workerCommand(), p.checkCommand(), p.opsCommand(), p.planCommand(), p.doctorCommand(),
		p.vramCommand())
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	})
	return root
}

func addSettings(cmd *cobra.Command, settings []*config.Setting) {
	for _, s := range settings {
		cmd.Flags().Var(s, s.Name, s.Usage)
	}
}

// release returns the version that the linker set, else the one in Go's build information.
func release() string {
	info, ok := debug.ReadBuildInfo()
	if version == "" && ok {
		return info.Main.Version
	}
	return version
}

// versionText returns the versions of program, protocol and Go.
func versionText() string {
	return fmt.Sprintf("reel-generator %s, protocol %d (%s %s/%s)", release(), protocol.Version, runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return config.Refuse(config.ErrUsage, "unexpected argument %q: see reel-generator --help", args[0])
}

// flagError distinguishes an invalid value from an unknown flag.
func flagError(_ *cobra.Command, err error) error {
	if errors.Is(err, config.ErrConfig) {
		return err
	}
	return config.Refuse(config.ErrUsage, "%w: see reel-generator --help", err)
}

// readForDevice completes the settings from the environment, and chooses the device of a
// command that serves no clients. It logs only warnings.
func (p *program) readForDevice(cmd *cobra.Command, settings []*config.Setting, o *config.Options) error {
	if err := config.ReadEnvironment(p.env, cmd.Flags().Changed, settings); err != nil {
		return err
	}
	log := logging.New(p.stderr, logging.Settings{Level: "warn", Format: o.LogFormat})
	return hardware.Choose(p.signals, log, p.stderr.Flush, o)
}
