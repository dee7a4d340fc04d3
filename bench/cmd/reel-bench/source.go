package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/bench"
	"reel.internal/reel/client"
)

// source describes the targets of a measurement: a generator, running or started for it,
// and peers.
type source struct {
	dial          client.Options
	start         bool
	path          string
	model, device string
	args          []string // of the generator, after --
	peers         []string
	peerText      bool
	connections   int
	needsOwn      bool // the command always starts a generator
}

// flags adds the flags that select the generator.
func (s *source) flags(flags *pflag.FlagSet) {
	if !s.needsOwn {
		flags.StringVar(&s.dial.Socket, "socket", "", "`path` of the generator's socket (default as for reel)")
		flags.DurationVar(&s.dial.Wait, "wait", 5*time.Second, "how long to wait for a generator")
		flags.BoolVar(&s.start, "start", false,
			"start a generator for the measurement (implied by the next three, and by flags for it after --)")
	}
	flags.StringVar(&s.model, "model", "",
		"`directory` of the started generator's model (default: the embedded one)")
	flags.StringVar(&s.device, "device", "", "its device: auto, host or cuda")
	flags.StringVar(&s.path, "generator", "",
		"`path` of reel-generator (default: beside this program, else on the path)")
}

// peerFlags adds the flags for servers measured beside the generator.
func (s *source) peerFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.peers, "peer", nil, "`NAME=URL[#MODEL]` of a server with OpenAI's completions, "+
		"measured alternately with the generator; may be repeated")
	flags.BoolVar(&s.peerText, "peer-text", false, "send text to peers, for servers that take no token ids (ollama)")
}

// cacheUsage is the usage of --cache.
const cacheUsage = "use of the server's prefix cache: off, `on` or read; other than off, prompts that it has seen " +
	"are faster"

// launch returns the way to start a generator.
func (s *source) launch() bench.Launch {
	l := bench.Launch{Path: s.path, Args: []string{"--log-level", "warn"}}
	if s.model != "" {
		l.Args = append(l.Args, "--model", s.model)
	}
	if s.device != "" {
		l.Args = append(l.Args, "--device", s.device)
	}
	l.Args = append(l.Args, s.args...)
	return l
}

// own reports whether to start a generator.
func (s *source) own() bool {
	return s.start || s.path != "" || s.model != "" || s.device != "" || len(s.args) > 0
}

// session has the connections of a measurement.
type session struct {
	first   *client.Client
	targets []bench.Target
	close   func()
}

// mostSpinning is the most connections of clients that poll, each of which takes a thread.
const mostSpinning = 64

// open starts a generator if necessary, and connects to all targets.
func (s *source) open(ctx context.Context) (*session, error) {
	o := &session{close: func() {}}
	s.dial.Spin = s.connections <= mostSpinning // as reel does
	dial := func() (*client.Client, error) { return client.Dial(ctx, s.dial) }
	if s.own() {
		p, err := s.launch().Start(ctx)
		if err != nil {
			return nil, err
		}
		o.close, p.Sleep = p.Stop, !s.dial.Spin
		dial = func() (*client.Client, error) { return p.Dial(ctx) }
	}
	if err := o.connect(dial, max(1, s.connections)); err != nil {
		o.close()
		return nil, err
	}
	for _, spec := range s.peers {
		p, err := bench.NewPeer(ctx, spec, s.peerText)
		if err != nil {
			o.close()
			return nil, err
		}
		o.targets = append(o.targets, p)
	}
	return o, nil
}

// connect makes n connections to the generator.
func (o *session) connect(dial func() (*client.Client, error), n int) error {
	var all []bench.Generator
	for range n {
		c, err := dial()
		if err != nil {
			return err
		}
		stop := o.close
		o.close = func() { c.Close(); stop() }
		all = append(all, c)
		if o.first == nil {
			o.first = c
		}
	}
	o.targets = []bench.Target{bench.NewReel(all...)}
	return nil
}

// describe returns the provenance for a generator's status.
func describe(s *client.Status) bench.Provenance {
	return bench.Describe(s, version, append([]string{"reel-bench"}, os.Args[1:]...))
}

// words accepts flags of the generator after --, and no other words.
func (s *source) words(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		return noWords(cmd, args)
	}
	s.args = args[dash:]
	return noWords(cmd, args[:dash])
}

// noWords refuses words after a command.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s takes no words: %q: see reel-bench --help", errUsage, cmd.Name(), args)
}

// measured opens the targets, measures them, and has the generator's status after that noted, while it still runs.
func measured[R any](ctx context.Context, s *source, measure func(*session) (R, error),
	note func(R, *client.Status)) (R, error) {
	var none R
	open, err := s.open(ctx)
	if err != nil {
		return none, err
	}
	defer open.close()
	report, err := measure(open)
	if err != nil {
		return none, err
	}
	status, err := open.status(ctx)
	if err != nil {
		return none, err
	}
	note(report, status)
	return report, nil
}

// status returns the generator's status.
func (o *session) status(ctx context.Context) (*client.Status, error) {
	s, err := o.first.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the generator's status: %w", err)
	}
	return s, nil
}
