//go:build linux

// Command reel-generator serves a language model to local processes over a
// Unix socket.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"reel/generator/internal/assembly"
	"reel/generator/internal/daemon"
	"reel/generator/internal/failure"
	"reel/generator/internal/logging"
)

// version is the release, which make sets.
var version string

func main() {
	// A log whose reader has gone must not end the generator.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stderr := logging.NewQueue(os.Stderr)
	log.SetOutput(stderr) // libraries must not wait for a reader either
	p := program{env: os.Getenv, stdout: os.Stdout, stderr: stderr, signals: signals, hangups: hangups(signals), load: assembly.Load,
		manager: daemon.Systemd, patience: drainTime}
	os.Exit(p.run(os.Args[1:]))
}

// hangups decides what SIGHUP does. On a terminal it says that the terminal has
// gone, and is one of signals. A service has no terminal: it outlives the signal,
// which comes out of the channel. Under nohup it is ignored, and stays so.
func hangups(signals chan<- os.Signal) <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	switch {
	case signal.Ignored(syscall.SIGHUP):
	case term.IsTerminal(int(os.Stdin.Fd())) || term.IsTerminal(int(os.Stderr.Fd())):
		signal.Notify(signals, syscall.SIGHUP)
	default:
		signal.Notify(asked, syscall.SIGHUP)
	}
	return asked
}

// program is the command and what it needs of the world, so that tests run it
// without a process.
type program struct {
	env      func(string) string
	stdout   io.Writer
	stderr   *logging.Queue
	signals  <-chan os.Signal // that end it
	hangups  <-chan os.Signal // that do not
	load     daemon.Loader
	manager  func(zerolog.Logger) (daemon.Manager, error)
	patience time.Duration // of a drain
}

// run executes the command line and returns the exit code. The log has been written
// then, or nobody has read it for a second.
func (p *program) run(args []string) int {
	defer p.stderr.Flush()
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
	return failure.ExitCode(err)
}
