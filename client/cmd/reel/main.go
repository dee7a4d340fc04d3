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

// run executes the command line and returns the exit code.
func run(args []string) int {
	// A write to a closed pipe should return an error, which ends the request, instead
	// of a signal, which ends the process.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	a := &app{}
	go watchSignals(signals, &a.answer, cancel)
	go watchOutput(cancel)
	root := a.command()
	root.SetArgs(route(root, args))
	err := root.ExecuteContext(ctx)
	return a.exitCode(ctx, err)
}

// graceTime is the time a command has after a signal to cancel its request, receive the
// generator's answer and print it.
const graceTime = time.Second

// watchSignals cancels the context at the first signal that does not just end an answer.
// It then ends the process after graceTime, in case that hangs in a blocked write.
func watchSignals(signals <-chan os.Signal, answer *answer, cancel context.CancelCauseFunc) {
	first := (<-signals).(syscall.Signal)
	for first == syscall.SIGINT && answer.stop() {
		first = (<-signals).(syscall.Signal)
	}
	cancel(interrupted{first})
	time.Sleep(graceTime)
	os.Exit(exitSignal + int(first))
}

// watchOutput cancels the context when the reader of standard output has gone, even if
// no token comes, so that the generator does no needless work.
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
