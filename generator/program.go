//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"reel.internal/reel/flagerror"
	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/daemon"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/protocol"
)

// version is the release; make sets it.
var version string

// errLogged marks an error that has been written to stderr.
var errLogged = errors.New("generator")

// drainTime is the longest time for running requests after the first signal.
const drainTime = 30 * time.Second

// program is the command with its environment, so that tests run it without a process.
type program struct {
	env      func(string) string
	environ  []string // all of it, as in os.Environ
	stdout   io.Writer
	stderr   *logging.Queue
	signals  <-chan os.Signal // end it
	hangups  <-chan os.Signal // reload the settings
	load     daemon.Loader
	manager  func(zerolog.Logger) (daemon.Manager, error)
	patience time.Duration // longest drain
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

// noArguments refuses arguments, which are often a model.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	advice := "see " + cmd.CommandPath() + " --help"
	if cmd.Flags().Lookup("model") != nil {
		advice = "to name a model, give --model; " + advice
	}
	return config.Refuse(config.ErrUsage, "unexpected argument %q: %s", args[0], advice)
}

// flagError distinguishes an invalid value from an unknown flag.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, config.ErrConfig) {
		return err
	}
	return config.Refuse(config.ErrUsage, "%w: see %s --help", flagerror.Plain(err), cmd.CommandPath())
}

// locate replaces a model's name by its path, and says on stderr if a path had the name too.
func (p *program) locate(o *config.Options) error {
	located, note, err := assembly.Locate(*o)
	if note != "" {
		_, _ = fmt.Fprintf(p.stderr, "reel-generator: %s\n", note)
	}
	*o = located
	return err
}

// readForDevice completes the settings from the environment, and chooses the device of a
// command that serves no clients, and locates the model. It logs only warnings.
func (p *program) readForDevice(cmd *cobra.Command, settings []*config.Setting, o *config.Options) error {
	if err := config.ReadEnvironment(p.env, cmd.Flags().Changed, settings); err != nil {
		return err
	}
	log := logging.New(p.stderr, logging.Settings{Level: "warn", Format: o.LogFormat})
	if err := hardware.Choose(p.signals, log, p.stderr.Flush, o); err != nil {
		return err
	}
	p.remarkMisspelt() // once: Choose may have become another program
	return p.locate(o)
}

// remarkMisspelt says on stderr which variables of the environment are nearly settings.
func (p *program) remarkMisspelt() {
	for _, remark := range config.Misspelt(p.environ) {
		_, _ = fmt.Fprintf(p.stderr, "reel-generator: %s\n", remark)
	}
}
