package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Exit codes, those of sysexits.h if it has a fitting one.
const (
	exitFailed      = 1
	exitUsage       = 64
	exitNoGenerator = 69
	exitBusy        = 75
	exitDenied      = 77
	exitConfig      = 78
	exitSignal      = 128 // plus the signal's number
)

// errClosedPipe ends a command if the reader of its output has gone. It is no failure.
var errClosedPipe = errors.New("standard output was closed")

// interrupted is the cause of a context that ended by a signal.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return i.signal.String() }

// failure is the printed form of an error: a stable code, the cause and what to do.
type failure struct {
	exit    int
	code    string
	message string
	hint    string
}

// exitCode prints err on stderr and returns the exit code.
func (a *app) exitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	var signalled interrupted
	ended := context.Cause(ctx)
	switch {
	case errors.As(ended, &signalled), errors.As(err, &signalled):
		return exitSignal + int(signalled.signal)
	case errors.Is(ended, errClosedPipe), errors.Is(err, errClosedPipe):
		return 0
	}
	var child *exec.ExitError
	if errors.As(err, &child) && child.Exited() {
		return child.ExitCode() // the child has printed its reason
	}
	f := explain(err, a.socket)
	f.hint = strings.Trim(f.hint+"\n"+a.stranger.text(), "\n")
	if already := (printed{}); !errors.As(err, &already) {
		f.print()
	}
	return f.exit
}

// print writes f to stderr.
func (f failure) print() {
	w := stderr()
	fmt.Fprintf(w, "reel: %s: %s\n", oneLine(f.code), indented(f.message))
	if f.hint != "" {
		fmt.Fprintf(w, "  %s\n", indented(f.hint))
	}
}

// indented indents all lines of text but the first, so that none looks like a message
// of its own.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// explain returns the code, message and hint for err.
func explain(err error, socket string) failure {
	var reported *client.Error
	var usage usageError
	var wrong mistake
	switch {
	case errors.As(err, &wrong):
		return failure{exitUsage, "usage", wrong.message, wrong.hint}
	case errors.As(err, &usage):
		return failure{exitUsage, "usage", err.Error(), "see reel --help"}
	case errors.As(err, &reported):
		return failure{exitOf(reported.Code), reported.Code, reported.Message, hintOf(reported)}
	case errors.Is(err, errNoProgram):
		return failure{exitNoGenerator, "no_program", err.Error(), "install it, or name its folder in $PATH"}
	case errors.Is(err, client.ErrConfig):
		return failure{exitConfig, "configuration", cause(err, client.ErrConfig), "see --socket and $REEL_SOCKET"}
	case errors.Is(err, client.ErrDenied):
		return failure{exitDenied, "denied", cause(err, client.ErrDenied),
			"ask to join the group that owns the socket"}
	case errors.Is(err, client.ErrSleeping):
		return failure{exitNoGenerator, "sleeping", err.Error(), "ask it something, or ask again"}
	case errors.Is(err, client.ErrNoAnswer):
		return failure{exitNoGenerator, "no_generator", cause(err, client.ErrNoGenerator),
			"see which process holds the socket (ss -xlp): a generator that is stopped or hangs has to be ended first; " +
				"if it is systemd, see the log of the service that it starts"}
	case errors.Is(err, client.ErrNoGenerator):
		return failure{exitNoGenerator, "no_generator", cause(err, client.ErrNoGenerator), absentHint(socket)}
	case errors.Is(err, client.ErrConnectionLost):
		return failure{exitFailed, "connection_lost", cause(err, client.ErrConnectionLost),
			"see the generator's log"}
	}
	return failure{exitFailed, "failed", err.Error(), ""}
}

// cause returns err's text without the leading text of kind, which the code repeats.
func cause(err, kind error) string {
	return strings.TrimPrefix(err.Error(), kind.Error()+": ")
}

// exitOf returns the exit code for a code of the generator. Values out of bounds and wrong
// formats are usage errors, although the generator finds them.
func exitOf(code string) int {
	switch code {
	case protocol.CodeBadRequest, protocol.CodeBadFormat, protocol.CodePromptTooLong, protocol.CodeNoChatTemplate,
		protocol.CodeNoEmbeddings, protocol.CodeNoGeneration:
		return exitUsage
	case protocol.CodeLoading, protocol.CodeDraining:
		return exitNoGenerator
	case protocol.CodeBusy, protocol.CodeTooManyRequests, protocol.CodeTooManyConnections, protocol.CodeOverloaded,
		protocol.CodeModelChanged, protocol.CodeNotIdle:
		return exitBusy
	case protocol.CodeDenied, protocol.CodeForbidden:
		return exitDenied
	case protocol.CodeUnsupportedVersion:
		return exitConfig
	}
	return exitFailed
}

// hintOf returns the generator's hint, or a better one of the client's.
func hintOf(reported *client.Error) string {
	if reported.Code == protocol.CodeLoading {
		return "wait longer, as with --wait 60s"
	}
	return reported.Hint
}

// unitFiles are the paths at which the generator's systemd unit may be installed.
var unitFiles = []string{
	"/etc/systemd/system/reel-generator.service",
	"/usr/local/lib/systemd/system/reel-generator.service",
	"/usr/lib/systemd/system/reel-generator.service",
	"/lib/systemd/system/reel-generator.service",
}

// absentHint says what to do where no generator listens. One that drains has closed its socket,
// and another one cannot start in its place before it has ended.
func absentHint(socket string) string {
	if r := client.Record(client.Options{Socket: socket}); r != nil && r.State == protocol.StateDraining {
		return fmt.Sprintf("the last one, pid %d, finishes its requests and then ends\n"+
			"if another one follows, wait longer, as with --wait 60s; otherwise, once it has ended, %s",
			r.PID, startHint(socket))
	}
	return startHint(socket)
}

// startHint names the command that starts a generator.
func startHint(socket string) string {
	command := "reel-generator"
	if socket != "" {
		return "start one: " + command + " --socket " + quote(socket)
	}
	for _, unit := range unitFiles {
		if _, err := os.Stat(unit); err == nil {
			return "start one: systemctl start reel-generator\nor, as yourself: " + command
		}
	}
	return "start one: " + command
}

// quote quotes s for a POSIX shell.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
