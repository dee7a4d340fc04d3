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
	root := command()
	root.Example = examples
	if err := manual.Write(root, os.Args[1], exits, variables, files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const examples = `  reel-bench latency
  reel-bench latency --model DIR --plot latency.svg
  reel-bench throughput --concurrency 1,8,64
  reel-bench latency --json >b.json && reel-bench compare a.json b.json`

var exits = manual.Exit(
	manual.Entry{Term: "0", Text: "Done."},
	manual.Entry{Term: "1", Text: "The measurement failed; for report --check: the files differ."},
	manual.Entry{Term: "64", Text: "Usage, a bad value, or a file that is no result."},
	manual.Entry{Term: "69", Text: "No generator, or it is still loading."},
	manual.Entry{Term: "77", Text: "Permission denied."},
	manual.Entry{Term: "78", Text: "Configuration: the path cannot be a socket's."},
	manual.Entry{Term: "130", Text: "Interrupted."},
)

var variables = manual.Environment(
	manual.Entry{Term: "REEL_SOCKET, XDG_RUNTIME_DIR", Text: "The generator's socket, as for reel(1)."},
	manual.Entry{Term: "REEL_FLAG", Text: "Settings of a generator that reel-bench starts, as for reel-generator(1)."},
	manual.Entry{Term: "GOMAXPROCS", Text: "Processors to use. Below 4 the client does not poll for tokens."},
)

var files = manual.Files(
	manual.Entry{Term: "reel-generator", Text: "Beside this program or on the path: the generator that is started."},
	manual.Entry{Term: "bench/results/MACHINE/*.json", Text: "Results that report reads."},
)
