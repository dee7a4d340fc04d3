package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel/client"
	"reel/protocol"
)

// app is a command line's flags and what its commands share.
type app struct {
	socket string
	wait   time.Duration

	request client.Request
	file    string
	timings bool
	json    bool
	jsonl   bool
	raw     bool
	system  string
	answer  answer // of a chat
	// stranger serves the socket, where it is neither the user nor root.
	stranger stranger
}

const long = `Stream a completion from the Reel generator that runs on this machine.

The prompt is the words of the command line, joined by spaces, and then, after a
blank line, standard input where it is a pipe or a file (or the FILE of -f
instead of it). One newline at the end of what is read is dropped.

Any words are a prompt, unless they are a subcommand and what it takes:
"reel status" asks for the status, "reel status of the union" is a prompt, and
so is everything after --, as in "reel -- status".

A model that was trained to chat gets the prompt as a user's message, in the form
of its chat template; --raw sends it as it is. "reel chat" talks over several
turns. To a base model, which has no template, a prompt is always raw.

Standard output holds the completion and nothing else, as it comes. On a
terminal control characters, and those that reorder text, are shown escaped;
piped output is exact. Ctrl-C and a closed pipe cancel the request on the
generator. A note on a terminal names the user who serves the socket where that
is neither you, root, nor the service's user.

The generator's socket is --socket, $REEL_SOCKET, or else the first that exists
of $XDG_RUNTIME_DIR/reel/generator.sock, /tmp/reel-UID/generator.sock and
/run/reel/generator.sock. --wait bounds how long to wait where a generator may
still come: it is loading, refuses connections, or its socket is missing from a
directory that is there.

Exit codes: 0 done, also where the reader of the output has gone; 1 the
generation failed; 64 usage, also a prompt or a value that the generator finds
out of bounds; 69 no generator, or it is still loading or stopping; 75 busy, or
the model's files changed: try again; 77 permission denied; 78 configuration: a
socket's path that can't be one, or another version of the protocol; 130
interrupted, 143 terminated.`

const examples = `  reel "Once more unto the breach"
  reel --max-tokens 64 --temperature 0 --timings "To be"
  cat notes.txt | reel "Summarise this:"
  reel --json -f prompt.txt | jq .usage
  reel --system "Answer in French." "Who was Molière?"
  reel chat
  reel status`

// command makes the whole command tree.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:               "reel [flags] [--] PROMPT...",
		Short:             "Stream completions from a Reel generator",
		Long:              long,
		Example:           examples,
		Version:           build(),
		Args:              cobra.ArbitraryArgs,
		RunE:              a.generate,
		SilenceErrors:     true,
		SilenceUsage:      true,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout()) // of help, the version and completions
	root.SetErr(stderr())
	global := root.PersistentFlags()
	global.StringVar(&a.socket, "socket", "", "`path` of the generator's socket")
	a.wait = 5 * time.Second
	global.Var((*seconds)(&a.wait), "wait", "how long to wait for a generator, as in 500ms, 5s or 2m")
	a.requestFlags(root.Flags())
	a.outputFlags(root.Flags())
	root.AddCommand(a.chatCommand(), a.statusCommand(), a.tokenizeCommand(), a.topCommand(), a.doctorCommand())
	return root
}

// requestFlags adds the prompt's sources and the fields of the protocol's generate.
func (a *app) requestFlags(flags *pflag.FlagSet) {
	r := &a.request
	flags.SortFlags = false
	flags.StringVarP(&a.file, "file", "f", "", "read the prompt from `FILE`, - being standard input")
	flags.Int32SliceVar(&r.Tokens, "tokens", nil, "the prompt as token `ids`, as in 1,2,3")
	flags.Lookup("tokens").DefValue = "" // not [], which is no prompt
	flags.BoolVar(&a.raw, "raw", false, "send the prompt as it is, without the model's chat template")
	a.samplingFlags(flags)
	flags.Var(optional("int", &r.Logprobs, strconv.Atoi), "logprobs", "report logprobs and this many alternatives, with --json and --jsonl")
	flags.BoolVar(&r.Echo, "echo", false, "print the prompt's tokens first")
	flags.BoolVar(&r.IgnoreEOS, "ignore-eos", false, "go on past the end-of-sequence token")
}

// samplingFlags adds what a chat's requests have too.
func (a *app) samplingFlags(flags *pflag.FlagSet) {
	r := &a.request
	flags.StringVar(&a.system, "system", "", "begin the conversation with this `text` as the system's message")
	flags.Var(optional("int", &r.MaxTokens, strconv.Atoi), "max-tokens", "length of the completion (default 256)")
	flags.Var(optional("float", &r.Temperature, parseFloat), "temperature", "0 takes the most probable token (default 0.8)")
	flags.Var(optional("int", &r.TopK, strconv.Atoi), "top-k", "keep the k most probable tokens, 0 all (default 0)")
	flags.Var(optional("float", &r.TopP, parseFloat), "top-p", "keep the most probable tokens up to this sum (default 1)")
	flags.Var(optional("float", &r.MinP, parseFloat), "min-p", "keep tokens this probable against the first (default 0)")
	flags.Var(optional("float", &r.RepeatPenalty, parseFloat), "repeat-penalty", "above 1 avoids repetition (default 1)")
	flags.Var(optional("uint", &r.Seed, parseUint), "seed", "the same seed gives the same tokens (default drawn)")
	flags.StringArrayVar(&r.Stop, "stop", nil, "end before this `string`; may come several times")
}

// outputFlags adds what to print.
func (a *app) outputFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&a.timings, "timings", false, "print TTFT, decode rate and total time on stderr")
	flags.BoolVar(&a.json, "json", false, "print one JSON object at the end")
	flags.BoolVar(&a.jsonl, "jsonl", false, "print each event as a line of JSON")
}

// version is the release, which make sets.
var version string

// build names the release, or what Go knows of the build, and the protocol.
func build() string {
	name := version
	if info, ok := debug.ReadBuildInfo(); ok && name == "" {
		name = info.Main.Version
	}
	return fmt.Sprintf("reel %s, protocol %d", name, protocol.Version)
}

// value is a flag whose absence differs from each of its values.
type value[T any] struct {
	kind  string
	to    **T
	parse func(string) (T, error)
}

// optional makes a flag that leaves *to nil where it is not given.
func optional[T any](kind string, to **T, parse func(string) (T, error)) value[T] {
	return value[T]{kind, to, parse}
}

// Set parses text; it is part of pflag.Value, as are Type and String.
func (v value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return fmt.Errorf("want %s: %w", v.kind, errors.Unwrap(err))
	}
	*v.to = &parsed
	return nil
}

// Type is the placeholder that help shows.
func (v value[T]) Type() string { return v.kind }

// String is empty: the generator knows the default.
func (v value[T]) String() string { return "" }

func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
func parseUint(text string) (uint64, error)   { return strconv.ParseUint(text, 10, 64) }

// seconds is a duration of which a bare number means seconds.
type seconds time.Duration

// Set parses text; it is part of pflag.Value, as are Type and String.
func (s *seconds) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("want a duration, as in 500ms, 5s or 2m")
	}
	*s = seconds(d)
	return nil
}

// Type is the placeholder that help shows.
func (s *seconds) Type() string { return "duration" }

// String returns the duration as Go writes it.
func (s *seconds) String() string { return time.Duration(*s).String() }
