// Command reel streams completions from a running Reel generator.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:])) }

// run runs the command line and returns the exit code.
func run(args []string) int {
	// A write to a closed pipe is to be an error, which ends the request, not a
	// signal, which ends the process.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	a := &app{}
	go watchSignals(signals, &a.answer, cancel)
	go watchOutput(cancel)
	root := a.command()
	route(root, args)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.exitCode(ctx, err)
}

// graceTime is what a command has after a signal: to cancel, to hear what the
// generator did, and to print it.
const graceTime = time.Second

// watchSignals ends the context at the first signal that does not end an answer;
// and the process, if it then hangs in a write that nobody reads.
func watchSignals(signals <-chan os.Signal, answer *answer, cancel context.CancelCauseFunc) {
	first := (<-signals).(syscall.Signal)
	for first == syscall.SIGINT && answer.stop() {
		first = (<-signals).(syscall.Signal)
	}
	cancel(interrupted{first})
	time.Sleep(graceTime)
	os.Exit(exitSignal + int(first))
}

// watchOutput ends the context when the reader of standard output has gone, so
// that a generator does not work for nobody between two tokens either.
func watchOutput(cancel context.CancelCauseFunc) {
	out := []unix.PollFd{{Fd: int32(stdout().fd())}}
	for {
		_, err := unix.Poll(out, -1)
		if err == unix.EINTR {
			continue
		}
		if err == nil && out[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			cancel(errClosedPipe)
		}
		return
	}
}
