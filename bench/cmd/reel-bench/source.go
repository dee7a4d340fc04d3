package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel/bench"
	"reel/client"
)

// source is what a command measures: a generator that runs, or one that it
// starts, and peers.
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

// flags adds what says which generator.
func (s *source) flags(flags *pflag.FlagSet) {
	if !s.needsOwn {
		flags.StringVar(&s.dial.Socket, "socket", "", "`path` of the generator's socket (default as for reel)")
		flags.DurationVar(&s.dial.Wait, "wait", 5*time.Second, "how long to wait for a generator")
		flags.BoolVar(&s.start, "start", false, "start a generator for the measurement; so do the next three, and flags for it after --")
	}
	flags.StringVar(&s.model, "model", "", "`directory` of the model of a generator that is started (default: the embedded one)")
	flags.StringVar(&s.device, "device", "", "its device: auto, host or cuda")
	flags.StringVar(&s.path, "generator", "", "`path` of reel-generator (default: beside this program, else on the path)")
}

// peerFlags adds what is measured beside the generator, in turn with it.
func (s *source) peerFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.peers, "peer", nil, "`NAME=URL[#MODEL]` of a server that speaks OpenAI's completions, measured in turn; may be repeated")
	flags.BoolVar(&s.peerText, "peer-text", false, "send peers texts: for servers that take no token ids (ollama)")
}

// launch is how to start a generator.
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

// own tells whether a generator is to be started.
func (s *source) own() bool {
	return s.start || s.path != "" || s.model != "" || s.device != "" || len(s.args) > 0
}

// session is connections to what is measured.
type session struct {
	first   *client.Client
	targets []bench.Target
	close   func()
}

// open starts a generator where it is to, and connects to all that is measured.
func (s *source) open(ctx context.Context) (*session, error) {
	o := &session{close: func() {}}
	dial := func() (*client.Client, error) { return client.Dial(ctx, s.dial) }
	if s.own() {
		p, err := s.launch().Start(ctx)
		if err != nil {
			return nil, err
		}
		o.close = p.Stop
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

// describe makes the provenance of a generator's status.
func describe(s *client.Status) bench.Provenance {
	return bench.Describe(s, version, append([]string{"reel-bench"}, os.Args[1:]...))
}

// words takes flags of the generator, after --, and nothing else.
func (s *source) words(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		return noWords(cmd, args)
	}
	s.args = args[dash:]
	return noWords(cmd, args[:dash])
}

// noWords refuses words that are no command.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s takes no words: %q: see reel-bench --help", errUsage, cmd.Name(), args)
}

// status asks the generator of a session.
func (o *session) status(ctx context.Context) (*client.Status, error) {
	s, err := o.first.Status(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("the generator's status"), err)
	}
	return s, nil
}
