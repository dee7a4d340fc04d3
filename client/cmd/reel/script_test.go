package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// quietly is set in the environment of a reel that says nothing of a generator that answers late, as one does on a busy
// machine.
const quietly = "REEL_TEST_QUIETLY"

func TestMain(m *testing.M) {
	if os.Getenv(quietly) != "" {
		quietTime = time.Hour
	}
	testscript.Main(m, map[string]func(){"reel": main})
}

// TestScript runs the transcripts of testdata/script against scripted generators. The
// commands of its own are defined below.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REEL_SOCKET", filepath.Join(env.WorkDir, "generator.sock"))
			env.Setenv(quietly, "1")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // under -race each exit would take a second
			env.Values[fakeKey{}] = new(running)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fake": fake, "got": got, "gone": gone, "run": runReel, "says": says,
		},
	})
}

type fakeKey struct{}

// running is the generator of a script.
type running struct {
	*fakegen.Generator
	listener net.Listener
}

func fakeOf(ts *testscript.TestScript) *running { return ts.Value(fakeKey{}).(*running) }

// fake starts a generator at $REEL_SOCKET and stops the previous one.
func fake(ts *testscript.TestScript, _ bool, args []string) {
	var s fakegen.Script
	flags := flag.NewFlagSet("fake", flag.ContinueOnError)
	flags.IntVar(&s.Loading, "loading", 0, "")
	flags.StringVar((*string)(&s.Ending), "ending", "", "")
	flags.StringVar(&s.State, "state", "", "")
	pieces := flags.String("pieces", "", "the tokens' texts, as a JSON list")
	tokens := flags.String("tokens", "", "what each token completes, as a JSON list of fakegen.Piece")
	message := flags.String("message", "it said so", "of errors and of loading, with Go's escapes")
	code := flags.String("code", "", "of the error for requests")
	flags.BoolVar(&s.Chat, "chat", false, "the model has a chat template")
	flags.BoolVar(&s.Embeds, "embeds", false, "the model is for embeddings")
	flags.StringVar(&s.NoChat, "no-chat", "", "the reason why its chat template is not used")
	flags.IntVar(&s.Context, "context", 0, "")
	flags.IntVar(&s.Cached, "cached", 0, "cached prompt tokens of requests")
	flags.IntVar(&s.Drafted, "drafted", 0, "guesses of requests")
	refuse := flags.String("refuse", "", "the code of the error for hello")
	ts.Check(flags.Parse(args))
	if *pieces != "" {
		ts.Check(json.Unmarshal([]byte(*pieces), &s.Pieces))
	}
	if *tokens != "" {
		ts.Check(json.Unmarshal([]byte(*tokens), &s.Tokens))
	}
	text := unquote(ts, *message)
	if *message != "it said so" {
		s.Message = text
	}
	if *code != "" {
		s.Ending, s.Error = fakegen.Fail, protocol.Errorf(*code, "do this", "%s", text)
	}
	if *refuse != "" {
		s.Refusal = protocol.Errorf(*refuse, "do this", "%s", text)
	}
	now := fakeOf(ts)
	if now.listener != nil {
		ts.Check(now.listener.Close())
	}
	l, err := net.Listen("unix", ts.Getenv("REEL_SOCKET"))
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	*now = running{fakegen.New(s), l}
	go now.Serve(l)
}

// patience bounds waits that are long only in a failing test.
func patience() <-chan struct{} {
	stop := make(chan struct{})
	time.AfterFunc(20*time.Second, func() { close(stop) })
	return stop
}

// got TYPE REGEXP waits for a message of a Go type whose fields, as JSON, match.
func got(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(strings.Join(args[1:], " "))
	_, err := fakeOf(ts).Wait(patience(), func(m any) bool {
		text, err := json.Marshal(m)
		return err == nil && fmt.Sprintf("%T", m) == "*protocol."+args[0] && pattern.Match(text)
	})
	ts.Check(err)
}

// says TEXT checks that standard output is exactly TEXT (with escapes as in Go).
func says(ts *testscript.TestScript, _ bool, args []string) {
	want := unquote(ts, strings.Join(args, " "))
	if got := ts.ReadFile("stdout"); got != want {
		ts.Fatalf("standard output is %q, want %q", got, want)
	}
}

// unquote resolves Go's escapes in text.
func unquote(ts *testscript.TestScript, text string) string {
	raw, err := strconv.Unquote(`"` + text + `"`)
	ts.Check(err)
	return raw
}

// gone waits until a connection to the generator has ended.
func gone(ts *testscript.TestScript, _ bool, _ []string) {
	stop := patience()
	for {
		n, news := fakeOf(ts).Gone()
		if n > 0 {
			return
		}
		select {
		case <-news:
		case <-stop:
			ts.Fatalf("the connection stays open")
		}
	}
}

// runOptions are the flags of the command run. "After" names the event that it waits for.
type runOptions struct {
	code   int    // expected exit code
	in     string // file for standard input, through a pipe; empty: /dev/null
	tty    bool   // standard input, output and error are a terminal
	signal string // INT or TERM, sent after the event
	keys   string // typed after the event, with Go's escapes
	stuck  bool   // standard output is not read after the event
	close  bool   // standard output is closed after the event
	after  string // the event: "output" for any output, else the Go type of a message received
}

// runReel runs reel and checks its exit code.
func runReel(ts *testscript.TestScript, _ bool, args []string) {
	var o runOptions
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.IntVar(&o.code, "code", 0, "")
	flags.StringVar(&o.in, "in", "", "")
	flags.BoolVar(&o.tty, "tty", false, "")
	flags.StringVar(&o.signal, "signal", "", "")
	flags.StringVar(&o.keys, "type", "", "")
	flags.BoolVar(&o.stuck, "stuck", false, "")
	flags.BoolVar(&o.close, "close", false, "")
	flags.StringVar(&o.after, "after", "output", "")
	ts.Check(flags.Parse(args))
	cmd := exec.Command("reel", flags.Args()...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "REEL_SOCKET", "XDG_RUNTIME_DIR", "GORACE", quietly, "FAILS", "TERM"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	if o.in != "" {
		cmd.Stdin = strings.NewReader(ts.ReadFile(o.in))
	}
	if code := o.start(ts, cmd); code != o.code {
		ts.Fatalf("exit code %d, want %d", code, o.code)
	}
}

// start runs cmd to its end and returns the exit code.
func (o *runOptions) start(ts *testscript.TestScript, cmd *exec.Cmd) int {
	ours, theirs, err := o.output()
	ts.Check(err)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = theirs, &stderr
	if o.tty {
		cmd.Stdin, cmd.Stderr = theirs, theirs
	}
	ts.Check(cmd.Start())
	theirs.Close()
	first := make([]byte, 1)
	n := 0
	if o.signal != "" || o.close || o.keys != "" {
		n = o.await(ts, ours, first)
	}
	if o.close {
		ours.Close()
	}
	if o.keys != "" {
		_, err := ours.WriteString(unquote(ts, o.keys))
		ts.Check(err)
	}
	if s := map[string]os.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM}[o.signal]; s != nil {
		ts.Check(cmd.Process.Signal(s))
	}
	if o.stuck {
		err = cmd.Wait()
	}
	rest, _ := io.ReadAll(ours) // a terminal ends with EIO
	ours.Close()
	if !o.stuck {
		err = cmd.Wait()
	}
	fmt.Fprintf(ts.Stdout(), "%s%s", first[:n], rest)
	fmt.Fprint(ts.Stderr(), stderr.String())
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		ts.Check(err)
	}
	return cmd.ProcessState.ExitCode()
}

// output returns our end and the command's end of standard output.
func (o *runOptions) output() (ours, theirs *os.File, err error) {
	if o.tty {
		return openTerminal()
	}
	return os.Pipe()
}

// await waits for the event and returns the number of bytes read until then.
func (o *runOptions) await(ts *testscript.TestScript, out *os.File, first []byte) int {
	if o.after == "output" {
		n, err := out.Read(first)
		ts.Check(err)
		return n
	}
	got(ts, false, []string{o.after, "."})
	return 0
}
