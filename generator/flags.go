//go:build linux

package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"reel/generator/internal/logging"
	"reel/generator/internal/server"
	"reel/graphs"
	"reel/protocol"
)

// Options are the generator's settings, from flags and the environment.
type Options struct {
	Model     string // directory; empty is the embedded model
	Socket    string
	Device    string // auto, host or cuda
	GPU       int
	MaxSeqLen int // tokens; 0 is the model's context
	MaxBatch  int // sequences; 0 is the device's choice
	LogLevel  string
	LogFormat string // json, console or auto

	Precapture  []int // prompt token counts whose graphs are captured at start; nil is the default
	GraphMemory int64 // bytes; 0 is the device's choice
	MaxGraphs   int
	Roller      string // on or off

	Metrics        string // address that Prometheus asks; empty is none
	Settings       string // file of variables, read again at SIGHUP
	MaxConnections int    // of one user; 0 is the protocol's bound
	MaxRequests    int    // of one connection; 0 is the protocol's bound

	Guard bool // of check alone: every buffer stands apart between canaries
}

var (
	errUsage  = errors.New("usage")
	errLogged = errors.New("generator") // its line is on stderr already
)

// refusal is an error that is also of a kind, errUsage or errConfig, without
// saying so in its text.
type refusal struct {
	error
	kind error
}

func (r refusal) Is(target error) bool { return target == r.kind }
func (r refusal) Unwrap() error        { return r.error }

func refuse(kind error, format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), kind}
}

// setting is one flag, also REEL_<FLAG> in the environment. It is a pflag.Value.
type setting struct {
	name, usage, kind string
	text              string // the value, at first the default
	parse             func(string) error
}

func (s *setting) String() string { return s.text }
func (s *setting) Type() string   { return s.kind }

// Set takes a value; one that it refuses is errConfig.
func (s *setting) Set(text string) error {
	if err := s.parse(text); err != nil {
		return refusal{err, errConfig}
	}
	s.text = text
	return nil
}

// variable is the setting's name in the environment.
func (s *setting) variable() string {
	return "REEL_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settings are all settings of o, with their defaults set.
func (o *Options) settings() []*setting {
	list := []*setting{
		{"model", "directory of a Hugging Face checkpoint (default: the embedded model)", "dir", "", anyText(&o.Model)},
		{"socket", "Unix socket to listen on (default: " + server.DefaultSocket() + ")", "path", "", anyText(&o.Socket)},
		{"device", "auto, host or cuda", "name", "auto", oneOf(&o.Device, "auto", "host", "cuda")},
		{"gpu", "which GPU, with cuda", "n", "0", number(&o.GPU, 1024)},
		{"max-seq-len", "tokens of prompt and completion together (0: the model's context)", "n", "0", number(&o.MaxSeqLen, protocol.MaxElements)},
		{"max-batch", "sequences of one user that run at once (0: what suits the device)", "n", "0", number(&o.MaxBatch, 4096)},
		{"precapture", "prompt token counts whose graphs are captured at start, as in 1-50,64; auto: 1-50, then multiples of 16", "list", "auto", counts(&o.Precapture)},
		{"graph-memory", "bytes that captured graphs may take, as in 512MiB (0: what suits the device)", "bytes", "0", byteCount(&o.GraphMemory)},
		{"max-graphs", "captured graphs that exist at once (0: none, every step is launched op by op)", "n", "1024", number(&o.MaxGraphs, 1<<20)},
		{"roller", "on, or off: graphs stay those of the start", "name", "on", oneOf(&o.Roller, "on", "off")},
		{"metrics", "address at which Prometheus can ask: a port of 127.0.0.1 or [::1], or unix: and a path (default: none)", "address", "", metricsAddress(&o.Metrics)},
		{"max-connections", "connections that a user may have, at most " + strconv.Itoa(protocol.MaxConnections) + " (0: that many)", "n", "0", number(&o.MaxConnections, protocol.MaxConnections)},
		{"max-requests", "requests that a connection may run, at most " + strconv.Itoa(protocol.MaxRequests) + " (0: that many)", "n", "0", number(&o.MaxRequests, protocol.MaxRequests)},
		{"settings", "file of lines REEL_FLAG=value, read at start and again at SIGHUP; a flag wins over it", "path", "", anyText(&o.Settings)},
		{"log-level", "trace, debug, info, warn or error", "level", "info", oneOf(&o.LogLevel, "trace", "debug", "info", "warn", "error")},
		{"log-format", "json, console, or auto: console on a terminal, else json", "name", "auto", oneOf(&o.LogFormat, "json", "console", "auto")},
	}
	for _, s := range list {
		if err := s.parse(s.text); err != nil {
			panic(err) // a default of this table
		}
	}
	return list
}

func anyText(to *string) func(string) error {
	return func(text string) error { *to = text; return nil }
}

func oneOf(to *string, names ...string) func(string) error {
	return func(text string) error {
		for _, name := range names {
			if text == name {
				*to = text
				return nil
			}
		}
		return fmt.Errorf("it must be %s or %s", strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
	}
}

func counts(to *[]int) func(string) error {
	return func(text string) error {
		if text == "auto" {
			*to = nil
			return nil
		}
		list, err := graphs.ParseCounts(text)
		if err != nil {
			return err
		}
		*to = append([]int{}, list...) // an empty list is not the default
		return nil
	}
}

func byteCount(to *int64) func(string) error {
	return func(text string) error {
		n, err := humanize.ParseBytes(text)
		if err != nil || n > 1<<60 {
			return errors.New("it must be a number of bytes, as in 1073741824 or 1GiB")
		}
		*to = int64(n)
		return nil
	}
}

func number(to *int, high int) func(string) error {
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > high {
			return fmt.Errorf("it must be a whole number, 0 to %d", high)
		}
		*to = n
		return nil
	}
}

// command is the command line.
func (p *program) command() *cobra.Command {
	var o Options
	settings := o.settings()
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
			r := newSettingsReader(p.env, cmd, settings)
			o, err := r.read()
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
	root.AddCommand(workerCommand(), p.checkCommand(), p.opsCommand(), p.planCommand(), p.doctorCommand(), p.vramCommand())
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	})
	return root
}

func addSettings(cmd *cobra.Command, settings []*setting) {
	for _, s := range settings {
		cmd.Flags().Var(s, s.name, s.usage)
	}
}

// release names the program: what the linker was told, else what Go knows of the build.
func release() string {
	info, ok := debug.ReadBuildInfo()
	if version == "" && ok {
		return info.Main.Version
	}
	return version
}

// versionText names the program, the protocol and the build.
func versionText() string {
	return fmt.Sprintf("reel-generator %s, protocol %d (%s %s/%s)", release(), protocol.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return refuse(errUsage, "unexpected argument %q: see reel-generator --help", args[0])
}

// flagError tells a bad value from a flag that does not exist.
func flagError(_ *cobra.Command, err error) error {
	if errors.Is(err, errConfig) {
		return err
	}
	return refuse(errUsage, "%w: see reel-generator --help", err)
}

// readForDevice sets what no flag has set of o, and chooses the device of a command
// that serves nobody; it logs warnings alone.
func (p *program) readForDevice(cmd *cobra.Command, settings []*setting, o *Options) error {
	if err := p.readEnvironment(cmd, settings); err != nil {
		return err
	}
	log := logging.New(p.stderr, logging.Settings{Level: "warn", Format: o.LogFormat})
	return chooseDevice(p.signals, log, p.stderr.Flush, o)
}

// readEnvironment sets what no flag has set.
func (p *program) readEnvironment(cmd *cobra.Command, settings []*setting) error {
	for _, s := range settings {
		value := p.env(s.variable())
		if value == "" || cmd.Flags().Changed(s.name) {
			continue
		}
		if err := s.Set(value); err != nil {
			return fmt.Errorf("invalid value %q of %s in the environment: %w", value, s.variable(), err)
		}
	}
	return nil
}
