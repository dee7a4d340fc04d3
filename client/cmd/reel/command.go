package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"reel.internal/reel/client"
	"reel.internal/reel/flagerror"
	"reel.internal/reel/protocol"
)

// app holds the flags of the command line and the state that commands share.
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
	special *bool // of prompts and messages; nil: as the protocol has it
	form    form
	// reasoning is a value of --reasoning; empty: as the output is.
	reasoning string
	answer    answer // being printed by chat
	clamped   int    // the last --max-tokens that was reduced to the context
	// stranger is the listening process, if it belongs to neither the user nor root.
	stranger stranger
}

const long = `Stream a completion from the Reel generator that runs on this machine.

The prompt is made of the words of the command line, joined by spaces, followed,
after a blank line, by standard input if that is a pipe or a file (or by the FILE
of -f instead). One newline at the end of the input is dropped.

All words are a prompt, unless they are a subcommand with its arguments:
"reel status" asks for the status, "reel status of the union" is a prompt, and
so is everything after --, as in "reel -- status". Words that other programs use
as commands (list, run, serve, ps, pull), alone or with one more word, generate
nothing: reel prints the command to use. So does, if typed on a terminal, a single
word that is nearly a subcommand, such as "statsu".

A model that was trained to chat receives the prompt as a user's message, in the
form of its chat template; --raw sends the prompt as it is. "reel chat" holds a
conversation of several messages. For a base model, which has no template, a
prompt is always raw. --template sets a variable that the template reads: its value
is JSON, or otherwise a text.

Standard output contains only the completion, token by token. On a terminal,
control characters and characters that reorder text are shown escaped; piped
output is exact. Ctrl-C and a closed pipe cancel the request on the generator.
If the socket is served by a user other than you, root and the service's user, a
note on the terminal names that user.

The generator's socket is --socket, $REEL_SOCKET, or else the first that exists
of $XDG_RUNTIME_DIR/reel/generator.sock, /tmp/reel-UID/generator.sock and
/run/reel/generator.sock. --wait bounds the time to wait for a generator that may
still come: it is loading, or it refuses connections, or its socket is missing
but the socket's directory exists.

Exit codes: 0 done, even if the reader of the output has gone; 1 the generation
failed; 64 usage, or the generator found the prompt or a value out of bounds, or
the format wrong; 69 no generator, or it is still loading or stopping; 75 busy, or
the model's files changed: try again; 77 permission denied; 78 configuration: the
path can't be a socket's, or the generator speaks another version of the protocol;
130 interrupted, 143 terminated.`

// short is printed by reel without arguments on a terminal.
const short = `reel streams completions from the Reel generator on this machine.

  reel "Once more unto the breach"    complete a prompt
  git diff | reel "Explain this:"     with a text from a pipe
  reel chat                           talk with a model that was trained to chat
  reel status                         what the generator serves; reel doctor: why it does not
  reel --help                         all commands, flags and exit codes
`

const examples = `  reel "Once more unto the breach"
  reel --max-tokens 64 --temperature 0 --timings "To be"
  cat notes.txt | reel "Summarise this:"
  reel --json -f prompt.txt | jq .usage
  reel --system "Answer in French." "Who was Molière?"
  reel chat
  reel status`

// flagError is a mistake in the flags of a command. One that is the name of a command below is taken for that.
func flagError(cmd *cobra.Command, err error) error {
	name, _ := strings.CutPrefix(err.Error(), "unknown flag: --")
	for _, below := range cmd.Commands() {
		if below.Name() == name {
			return mistake{err.Error(), "use: " + below.CommandPath()}
		}
	}
	return usageError{flagerror.Plain(err)}
}

// command returns the whole command tree.
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
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(stdout()) // for help, the version and completions
	root.SetErr(stderr())
	global := root.PersistentFlags()
	global.StringVar(&a.socket, "socket", "", "`path` of the generator's socket")
	a.wait = 5 * time.Second
	global.Var((*seconds)(&a.wait), "wait", "how long to wait for a generator, such as 500ms, 5s or 2m")
	a.requestFlags(root.Flags())
	a.outputFlags(root.Flags())
	root.AddCommand(a.chatCommand(), a.statusCommand(), a.tokenizeCommand(), a.topCommand(), a.cacheCommand(),
		a.embedCommand(), a.sleepCommand(), a.doctorCommand(), versionCommand())
	for _, c := range append(root.Commands(), root) {
		c.Flags().SortFlags = false // by importance, help last
	}
	return root
}

// requestFlags adds flags for the prompt and for the fields of the protocol's generate.
func (a *app) requestFlags(flags *pflag.FlagSet) {
	r := &a.request
	flags.StringVarP(&a.file, "file", "f", "", "read the prompt from `FILE`; - is standard input")
	flags.Int32SliceVar(&r.Tokens, "tokens", nil, "the prompt as token `ids`, such as 1,2,3")
	flags.Lookup("tokens").DefValue = "" // instead of [], which is no prompt
	flags.BoolVar(&a.raw, "raw", false, "send the prompt as it is, without the model's chat template")
	a.conversationFlags(flags)
	a.specialFlag(flags, "as tokens in a raw prompt alone")
	userFlag(flags, &a.request.User, "whose request it is, within your uid")
	a.samplingFlags(flags, func(value string) string { return "default " + value + "; in a conversation the model's" })
	flags.Var(optional("int", &r.Logprobs, strconv.Atoi), "logprobs",
		"report logprobs and this many alternatives, with --json and --jsonl")
	flags.BoolVar(&r.Echo, "echo", false, "print the prompt's tokens first")
	flags.BoolVar(&r.IgnoreEOS, "ignore-eos", false, "go on past the end-of-sequence token")
	a.formFlags(flags)
}

// userFlag adds the flag for a name that divides the uid.
func userFlag(flags *pflag.FlagSet, to *string, what string) {
	flags.StringVar(to, "user", "", "a `name` that says "+what+
		": names divide its share, and have cached prompts of their own")
}

// samplingFlags adds the flags that chat has too. byDefault describes the default of a value
// that the protocol gives and that a model may give for conversations.
func (a *app) samplingFlags(flags *pflag.FlagSet, byDefault func(value string) string) {
	r := &a.request
	flags.Var(optional("int", &r.MaxTokens, strconv.Atoi), "max-tokens",
		"length of the completion (default 4096, or what the context leaves)")
	flags.Var(optional("float", &r.Temperature, parseFloat), "temperature",
		"0 takes the most probable token ("+byDefault("0.8")+")")
	flags.Var(optional("int", &r.TopK, strconv.Atoi), "top-k",
		"keep the k most probable tokens; 0: all ("+byDefault("0")+")")
	flags.Var(optional("float", &r.TopP, parseFloat), "top-p",
		"keep the most probable tokens up to this sum ("+byDefault("1")+")")
	flags.Var(optional("float", &r.MinP, parseFloat), "min-p",
		"keep tokens at least this probable, relative to the most probable ("+byDefault("0")+")")
	flags.Var(optional("float", &r.RepeatPenalty, parseFloat), "repeat-penalty",
		"values above 1 avoid repetition ("+byDefault("1")+")")
	flags.Var(optional("float", &r.PresencePenalty, parseFloat), "presence-penalty",
		"subtracted from the logits of tokens that the completion has; -2 to 2 (default 0)")
	flags.Var(optional("float", &r.FrequencyPenalty, parseFloat), "frequency-penalty",
		"the same, once for each time that the completion has the token (default 0)")
	flags.Var((*biases)(&r.LogitBias), "logit-bias", "add to a token's logit, such as 50256=-100; may be repeated")
	flags.Var(optional("uint", &r.Seed, parseUint), "seed", "the same seed gives the same tokens (default: random)")
	flags.Var(oneOf{&r.Cache, []string{protocol.CacheOn, protocol.CacheRead, protocol.CacheOff}}, "cache",
		"begin with cached pages of earlier prompts and leave this prompt's (on), only begin with them (read), or "+
			"neither (off) (default on)")
	a.draftFlag(flags)
	flags.StringArrayVar(&r.Stop, "stop", nil, "end before this `string`; may be repeated")
	flags.Var(oneOf{&a.reasoning, []string{reasoningOn, reasoningOff}}, "reasoning",
		"print what the model thinks before it answers a conversation (default: on a terminal on, otherwise off)")
}

// outputFlags adds flags for the form of the output.
func (a *app) outputFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&a.timings, "timings", false, "print TTFT, decode rate and total time on stderr")
	flags.BoolVar(&a.json, "json", false, "print one JSON object at the end")
	flags.BoolVar(&a.jsonl, "jsonl", false, "print each event as a line of JSON")
}

// version is the release; make sets it.
var version string

// build returns the release, or Go's version of the module, and the protocol's version.
func build() string {
	name := version
	if info, ok := debug.ReadBuildInfo(); ok && name == "" {
		name = info.Main.Version
	}
	return fmt.Sprintf("reel %s, protocol %d", name, protocol.Version)
}

// versionCommand returns the command that prints what --version prints.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), build())
			return closedPipe(err)
		},
	}
}

// value is an optional flag; it has no default value here.
type value[T any] struct {
	kind  string
	to    **T
	parse func(string) (T, error)
}

// optional returns a flag that leaves *to nil unless it is given.
func optional[T any](kind string, to **T, parse func(string) (T, error)) value[T] {
	return value[T]{kind, to, parse}
}

// Set parses text. With Type and String it implements pflag.Value.
func (v value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return flagerror.Number(err)
	}
	*v.to = &parsed
	return nil
}

// Type returns the placeholder that help shows.
func (v value[T]) Type() string { return v.kind }

// String is empty unless the flag is given, because the default is the generator's.
func (v value[T]) String() string {
	if v.to == nil || *v.to == nil {
		return ""
	}
	return fmt.Sprint(**v.to)
}

// reset makes the flag optional again.
func (v value[T]) reset() { *v.to = nil }

// oneOf is a flag with one of some words as its value, or with none.
type oneOf struct {
	to    *string
	words []string
}

// Set stores a word. With Type and String it implements pflag.Value.
func (v oneOf) Set(text string) error {
	if !slices.Contains(v.words, text) {
		return fmt.Errorf("want %s or %s", strings.Join(v.words[:len(v.words)-1], ", "), v.words[len(v.words)-1])
	}
	*v.to = text
	return nil
}

// Type returns the placeholder that help shows.
func (v oneOf) Type() string { return strings.Join(v.words, "|") }

// String is empty unless the flag is given.
func (v oneOf) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

// reset makes the flag optional again.
func (v oneOf) reset() { *v.to = "" }

func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
func parseUint(text string) (uint64, error)   { return strconv.ParseUint(text, 10, 64) }

// seconds is a duration flag; a bare number means seconds.
type seconds time.Duration

// Set parses text. With Type and String it implements pflag.Value.
func (s *seconds) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("want a duration, such as 500ms, 5s or 2m")
	}
	*s = seconds(d)
	return nil
}

// Type returns the placeholder that help shows.
func (s *seconds) Type() string { return "duration" }

// String returns the duration in Go's form.
func (s *seconds) String() string { return time.Duration(*s).String() }
