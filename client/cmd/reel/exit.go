package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"reel/client"
	"reel/protocol"
)

// Exit codes, after sysexits.h where it has one.
const (
	exitFailed      = 1
	exitUsage       = 64
	exitNoGenerator = 69
	exitBusy        = 75
	exitDenied      = 77
	exitConfig      = 78
	exitSignal      = 128 // plus the signal's number
)

// errClosedPipe ends a command whose reader has gone. It is no failure.
var errClosedPipe = errors.New("standard output was closed")

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return i.signal.String() }

// failure is how an error is shown: a stable code, its cause and what to do.
type failure struct {
	exit    int
	code    string
	message string
	hint    string
}

// exitCode shows err on stderr and returns the code to exit with.
func (a *app) exitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	var signalled interrupted
	ended := context.Cause(ctx)
	switch {
	case errors.As(ended, &signalled):
		return exitSignal + int(signalled.signal)
	case errors.Is(ended, errClosedPipe), errors.Is(err, errClosedPipe):
		return 0
	}
	var child *exec.ExitError
	if errors.As(err, &child) && child.Exited() {
		return child.ExitCode() // of a program that has said why
	}
	f := explain(err, a.socket)
	f.hint = strings.Trim(f.hint+"\n"+a.stranger.text(), "\n")
	if said := (shown{}); !errors.As(err, &said) {
		f.show()
	}
	return f.exit
}

// show writes f to stderr.
func (f failure) show() {
	w := stderr()
	fmt.Fprintf(w, "reel: %s: %s\n", oneLine(f.code), indented(f.message))
	if f.hint != "" {
		fmt.Fprintf(w, "  %s\n", indented(f.hint))
	}
}

// indented has a text's further lines stand below its first, so that none looks
// like a message of its own.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// explain says what err means to the user.
func explain(err error, socket string) failure {
	var said *client.Error
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return failure{exitUsage, "usage", err.Error(), "see reel --help"}
	case errors.As(err, &said):
		return failure{exitOf(said.Code), said.Code, said.Message, hintOf(said)}
	case errors.Is(err, errNoProgram):
		return failure{exitNoGenerator, "no_program", err.Error(), "install it, or name its folder in $PATH"}
	case errors.Is(err, client.ErrConfig):
		return failure{exitConfig, "configuration", cause(err, client.ErrConfig), "see --socket and $REEL_SOCKET"}
	case errors.Is(err, client.ErrDenied):
		return failure{exitDenied, "denied", cause(err, client.ErrDenied), "ask for membership of the group that owns the socket"}
	case errors.Is(err, client.ErrNoAnswer):
		return failure{exitNoGenerator, "no_generator", cause(err, client.ErrNoGenerator), "see what holds the socket: a generator that is stopped or hangs has to be ended first"}
	case errors.Is(err, client.ErrNoGenerator):
		return failure{exitNoGenerator, "no_generator", cause(err, client.ErrNoGenerator), startHint(socket)}
	case errors.Is(err, client.ErrConnectionLost):
		return failure{exitFailed, "connection_lost", cause(err, client.ErrConnectionLost), "see the generator's log"}
	}
	return failure{exitFailed, "failed", err.Error(), ""}
}

// cause returns what err says after the kind of it, which the code says already.
func cause(err, kind error) string {
	return strings.TrimPrefix(err.Error(), kind.Error()+": ")
}

// exitOf maps the generator's codes. What the user asked for out of bounds is
// a usage error, found by the generator.
func exitOf(code string) int {
	switch code {
	case protocol.CodeBadRequest, protocol.CodePromptTooLong, protocol.CodeNoChatTemplate:
		return exitUsage
	case protocol.CodeLoading, protocol.CodeDraining:
		return exitNoGenerator
	case protocol.CodeBusy, protocol.CodeTooManyRequests, protocol.CodeTooManyConnections, protocol.CodeOverloaded,
		protocol.CodeModelChanged:
		return exitBusy
	case protocol.CodeDenied:
		return exitDenied
	case protocol.CodeUnsupportedVersion:
		return exitConfig
	}
	return exitFailed
}

// hintOf returns the generator's hint, or the client's where it has a better one.
func hintOf(said *client.Error) string {
	if said.Code == protocol.CodeLoading {
		return "wait longer, as with --wait 60s"
	}
	return said.Hint
}

// unitFiles are where a system unit of the generator may be installed.
var unitFiles = []string{
	"/etc/systemd/system/reel-generator.service",
	"/usr/local/lib/systemd/system/reel-generator.service",
	"/usr/lib/systemd/system/reel-generator.service",
	"/lib/systemd/system/reel-generator.service",
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

// quote returns s as a POSIX shell reads it back.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
