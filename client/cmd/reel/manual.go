//go:build manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program only writes its man pages and completions into the
// directory named by its first argument.
func init() {
	if err := manual.Write((&app{}).command(), os.Args[1], notes, exits, environment, files); err != nil {
		fmt.Fprintln(stderr(), err)
		os.Exit(1)
	}
	os.Exit(0)
}

var notes = manual.Notes(
	manual.Entry{Term: "In a script", Text: "A standard input that is a pipe is read to its end: pass </dev/null if " +
		"nobody closes the pipe. A cron job has no XDG_RUNTIME_DIR: set REEL_SOCKET."},
)

var exits = manual.Exit(
	manual.Entry{Term: "0", Text: "Done, even if the reader of the output has gone."},
	manual.Entry{Term: "1", Text: "The generation failed; for doctor: a check failed, or no generator serves."},
	manual.Entry{Term: "64", Text: "Usage: an unknown flag or command, a bad value, a prompt or value out of " +
		"bounds, or a wrong format."},
	manual.Entry{Term: "69", Text: "No generator, or it is still loading or stopping."},
	manual.Entry{Term: "75", Text: "Busy, or the model's files changed: try again."},
	manual.Entry{Term: "77", Text: "Permission denied."},
	manual.Entry{Term: "78", Text: "Configuration: the path cannot be a socket's, or the generator speaks another " +
		"version of the protocol."},
	manual.Entry{Term: "130, 143", Text: "Ended by Ctrl-C, or by SIGTERM."},
)

var environment = manual.Environment(
	manual.Entry{Term: "REEL_SOCKET", Text: "Path of the generator's socket, unless --socket is given."},
	manual.Entry{Term: "XDG_RUNTIME_DIR", Text: "Directory of this user's sockets."},
	manual.Entry{Term: "TERM", Text: "If it is dumb, nothing is redrawn on the terminal."},
	manual.Entry{Term: "REEL_MODEL and other settings", Text: "Read by doctor, as by reel-generator(1)."},
)

var files = manual.Files(
	manual.Entry{Term: "$XDG_STATE_HOME/reel/chats/NAME.json", Text: "A conversation that chat --continue keeps, in " +
		"the format of /save; without XDG_STATE_HOME below ~/.local/state."},
	manual.Entry{Term: "$XDG_RUNTIME_DIR/reel/generator.sock", Text: "Socket of this user's generator."},
	manual.Entry{Term: "/tmp/reel-UID/generator.sock", Text: "The same, without XDG_RUNTIME_DIR. " +
		"The directory must belong to the user."},
	manual.Entry{Term: "/run/reel/generator.sock", Text: "Socket of the service."},
	manual.Entry{Term: "generator.state", Text: "Beside the socket: why the last generator failed, or that it " +
		"sleeps until the next request; status prints it."},
)
