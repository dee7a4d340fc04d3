// Command reel-gateway serves Reel generators over HTTP, to clients of OpenAI's, Anthropic's and Ollama's APIs.
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

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/oklog/run"
	"github.com/rs/zerolog"
	"github.com/rs/zerolog/diode"
	"golang.org/x/term"

	"reel.internal/reel/client/gateway"
)

// Exit codes, those of sysexits.h.
const (
	exitFailed = 1
	exitUsage  = 64
	exitConfig = 78
)

func main() {
	// The gateway goes on without a reader of its log.
	signal.Ignore(syscall.SIGPIPE)
	log, flush := newLog(os.Stderr)
	code := execute(os.Args[1:], os.Stdout, os.Stderr, log)
	flush()
	os.Exit(code)
}

// logLines is the number of log lines that may wait for a reader; further ones are dropped, so that
// no request waits for one.
const logLines = 1000

// newLog returns a log for people on a terminal, and of JSON lines otherwise, with the generator's names.
func newLog(out *os.File) (log zerolog.Logger, flush func()) {
	zerolog.TimestampFieldName, zerolog.MessageFieldName = "ts", "msg"
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.ErrorHandler = func(error) {}                      // otherwise it writes to stderr, which may block
	waiting := diode.NewWriter(out, logLines, 0, func(int) {}) // 0: it sleeps until there is a line
	var w io.Writer = waiting
	if term.IsTerminal(int(out.Fd())) {
		w = zerolog.ConsoleWriter{Out: waiting, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).With().Timestamp().Logger(), func() { _ = waiting.Close() }
}

// execute executes the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer, log zerolog.Logger) int {
	s := &settings{run: func(o gateway.Options) error { return serve(o, stdout) }, log: log}
	root := s.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var signalled run.SignalError
	switch {
	case err == nil, errors.As(err, &signalled):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "reel-gateway: %v\n  see reel-gateway --help\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "reel-gateway: %v\n", err)
	if errors.Is(err, gateway.ErrConfig) {
		return exitConfig
	}
	return exitFailed
}

// serve serves until SIGTERM or SIGINT. It prints the addresses when it listens. A second signal ends
// the drain.
func serve(o gateway.Options, stdout io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT) // before anyone can know that the gateway runs
	defer signal.Stop(signals)
	g, err := gateway.New(o)
	if err != nil {
		return err
	}
	for _, address := range g.Addresses() {
		fmt.Fprintf(stdout, "listening on %s\n", address)
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		o.Logger.Warn().Err(err).Msg("the service manager was not told that the gateway is ready")
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	patience, hurry := context.WithCancel(context.Background())
	defer hurry()
	var group run.Group
	group.Add(func() error { return g.Serve(ctx, patience) }, func(error) {
		go func() { <-signals; hurry() }()
		stop()
	})
	group.Add(func() error { return first(ctx, signals) }, func(error) { stop() })
	return group.Run()
}

// first waits for a signal and returns it, or nil when ctx ends.
func first(ctx context.Context, signals <-chan os.Signal) error {
	select {
	case s := <-signals:
		return run.SignalError{Signal: s}
	case <-ctx.Done():
		return nil
	}
}
