//go:build linux

// Command reel-generator serves a language model to local processes over a
// Unix socket.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"reel/generator/internal/server"
)

// version is the release, which make sets.
var version string

const (
	drainTime = 30 * time.Second // for running requests, after the first signal
	flushTime = 2 * time.Second  // for the last frames to be written
)

// Exit codes, as in sysexits.h.
const (
	exitFailure = 1
	exitUsage   = 64
	exitConfig  = 78
)

func main() {
	// A log whose reader has gone must not end the generator.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	p := program{env: os.Getenv, stdout: os.Stdout, stderr: os.Stderr, signals: signals, load: load, patience: drainTime}
	os.Exit(p.run(os.Args[1:]))
}

// program is the command and what it needs of the world, so that tests run it
// without a process.
type program struct {
	env            func(string) string
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	load           loader
	patience       time.Duration // of a drain
}

// loader loads the model that Options name. progress takes a share, 0 to 1, and
// what is being done. An error that is errConfig is the operator's to mend.
type loader func(ctx context.Context, o Options, progress func(float64, string)) (server.Model, engineRunner, error)

// engineRunner is a loaded model's engine. Run returns after Stop, or with the
// device's error.
type engineRunner interface {
	Run() error
	Stop()
}

// errSignal ends the groups after a drain, errForced at the second signal.
var (
	errSignal = errors.New("stopped by a signal")
	errForced = errors.New("stopped by a second signal before requests had finished")
)

// run executes the command line and returns the exit code.
func (p *program) run(args []string) int {
	cmd := p.command()
	cmd.SetArgs(args)
	err := cmd.Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errLogged):
	default:
		_, _ = fmt.Fprintf(p.stderr, "reel-generator: %v\n", err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errConfig):
		return exitConfig
	}
	return exitFailure
}

// serve runs the generator until a signal or a failure.
func (p *program) serve(o Options) error {
	log := newLogger(p.stderr, o)
	err := p.serveOn(log, o)
	if err == nil || errors.Is(err, errSignal) {
		log.Info().Msg("stopped")
		return nil
	}
	log.Error().Err(err).Msg("the generator ends")
	return refusal{err, errLogged}
}

func (p *program) serveOn(log zerolog.Logger, o Options) error {
	if err := chooseDevice(log, &o); err != nil {
		return err
	}
	s := server.New(server.Options{Socket: o.Socket, Version: release(), Logger: log})
	if err := s.Listen(); err != nil {
		return refuse(errConfig, "--socket: %w", err)
	}
	e := &engineActor{server: s, load: p.load, opts: o, log: log}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var g run.Group // interrupts come in this order: the engine ends its requests, then the server closes
	g.Add(e.execute, e.interrupt)
	g.Add(s.Serve, func(error) {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			log.Warn().Err(err).Msg("some clients did not take their last frames")
		}
	})
	stop := make(chan struct{})
	g.Add(func() error { return p.awaitSignal(s, log, stop) }, func(error) { close(stop) })
	return g.Run()
}

// awaitSignal drains at the first signal and gives that up at the second.
func (p *program) awaitSignal(s *server.Server, log zerolog.Logger, stop <-chan struct{}) error {
	select {
	case sig := <-p.signals:
		log.Info().Stringer("signal", sig).Msg("draining: no new requests; a second signal stops at once")
	case <-stop:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		_ = s.Drain(ctx) // the engine ends what still runs after it
		close(drained)
	}()
	select {
	case <-drained:
		return errSignal
	case <-p.signals:
		return errForced
	case <-stop:
		return nil
	}
}
