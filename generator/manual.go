//go:build linux && manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program writes its man pages and completions into the folder given
// as its first argument, and exits.
func init() {
	p := program{env: os.Getenv, stdout: os.Stdout, stderr: logging.NewQueue(os.Stderr)}
	root := p.command()
	root.Example = examples
	if err := manual.Write(root, os.Args[1], notes, exits, variables, files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const examples = `  reel-generator
  reel-generator --model DIR --device cuda --max-batch 8
  reel-generator plan --model DIR --vram 24GiB
  reel-generator check --device host`

var notes = manual.Notes(
	manual.Entry{Term: "--device", Text: "host is this machine's processors, cuda an NVIDIA GPU, through " +
		"reel-generator-cuda beside this program. auto takes a GPU if there is one; without one it serves on host " +
		"and says why in one line. cuda requires a GPU; without one it exits with 78."},
	manual.Entry{Term: "--max-batch", Text: "A few more sequences are reserved for users who have none running."},
	manual.Entry{Term: "--host-cache", Text: "Keys and values of prompts are copied there before they leave the device, and " +
		"copied back when a later prompt begins alike. Requests then take the device's memory as they need it; if it " +
		"runs out, one moves out and comes back. auto: beside a GPU a quarter of the memory that the machine and its " +
		"cgroup leave, at most twice the KV cache, and none below 256 MiB. The memory is pinned after the start, beside " +
		"serving. On host it is part of the memory that reel-generator plan shows."},
	manual.Entry{Term: "--roller", Text: "off captures no graph while serving, for comparison."},
	manual.Entry{Term: "--settings, SIGHUP", Text: "Of a changed file, SIGHUP applies log level, graphs' budget and " +
		"limits; the log names settings that need a restart. A file with an error changes nothing. A generator that " +
		"was started on a terminal ends at SIGHUP as at SIGTERM."},
	manual.Entry{Term: "--metrics", Text: "Other addresses are refused. grafana-dashboard.json, in the package's " +
		"documentation, shows all metrics."},
	manual.Entry{Term: "--log-format, --log-level", Text: "A JSON log has a line for each request, without its text. " +
		"In a log on a terminal, lines about requests that did not fail are of level debug. Each message is limited " +
		"to 200 lines at once and 50 a second; left_out counts the rest."},
	manual.Entry{Term: "--model", Text: "The files are mapped while the generator runs: replace a file by renaming " +
		"another into its place. If files are written in place, the generator ends with exit code 75."},
)

var exits = manual.Exit(
	manual.Entry{Term: "0", Text: "Stopped by a signal, or the command is done."},
	manual.Entry{Term: "1", Text: "Failed, or a second signal ended running requests; for check and " +
		"doctor: a fault was found."},
	manual.Entry{Term: "64", Text: "Usage: an unknown flag or command."},
	manual.Entry{Term: "75", Text: "A later start can succeed: the model's files changed, or another " +
		"generator that starts or drains holds the socket."},
	manual.Entry{Term: "78", Text: "Configuration: a bad value, no GPU with --device cuda, a model that cannot be " +
		"served or does not fit."},
)

var variables = manual.Environment(
	manual.Entry{Term: "REEL_FLAG", Text: "The value of a flag: --max-batch is REEL_MAX_BATCH. The flag wins."},
	manual.Entry{Term: "XDG_RUNTIME_DIR", Text: "Directory of the default socket, except for root."},
	manual.Entry{Term: "LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC", Text: "Set by systemd: the socket, notifications, " +
		"and the watchdog."},
	manual.Entry{Term: "TERM", Text: "If it is dumb, the log has no colours and loading draws no bar."},
)

var files = manual.Files(
	manual.Entry{Term: "/run/reel/generator.sock", Text: "Default socket of root and of the service."},
	manual.Entry{Term: "$XDG_RUNTIME_DIR/reel/generator.sock", Text: "Default socket of other users."},
	manual.Entry{Term: "/tmp/reel-UID/generator.sock", Text: "The same, without XDG_RUNTIME_DIR."},
	manual.Entry{Term: "generator.state", Text: "Beside the socket: the record of a failure, or of a generator that " +
		"stops or sleeps (--idle-exit)."},
	manual.Entry{Term: "/etc/reel/generator.env", Text: "Settings of the service."},
)
