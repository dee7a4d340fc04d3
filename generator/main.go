//go:build linux

// Command reel-generator serves a language model to local processes over a Unix socket.
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/daemon"
	"reel.internal/reel/generator/internal/logging"
)

func main() {
	// The generator goes on without a reader of its log.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stderr := logging.NewQueue(os.Stderr)
	log.SetOutput(stderr) // libraries must not block on a reader either
	p := program{env: os.Getenv, environ: os.Environ(), stdout: os.Stdout, stderr: stderr,
		signals: signals, hangups: hangups(signals), load: assembly.Load,
		manager: daemon.Systemd, patience: drainTime}
	os.Exit(p.run(os.Args[1:]))
}

// hangups decides the effect of SIGHUP. On a terminal it means that the terminal has gone, and
// it is sent to signals. A service has no terminal, so SIGHUP is sent to the returned channel
// and ends nothing. Under nohup it stays ignored.
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
