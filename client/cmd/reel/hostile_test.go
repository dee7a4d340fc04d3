package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// hostile is text that a malicious generator may put into any string: control sequences,
// newlines that forge messages of reel, and characters that reorder or hide text. Tests
// search the output for its first and last character.
const hostile = "<\x1b]0;title\x07\x1b[2J\r\nreel: forged\t\x7f\u009b2J" +
	"\u200c\u200d\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" +
	"\u2028\u2029\ufeff\u00ad\u2063\U000e0041\U000e007f>"

// ownSequences matches the control sequences that reel writes itself.
var ownSequences = regexp.MustCompile("\r\n|\r(reel: \\[)|\x1b\\[(\\?1049[hl]|\\?25[hl]|[HJK])|\r\x1b\\[K")

// hostileRun is a command line with the malicious generator that it meets.
type hostileRun struct {
	args   []string
	script fakegen.Script
	input  string         // typed on the terminal
	exit   int            // the expected exit code
	answer bool           // the output contains generated text
	json   func(any) bool // reports whether a line's value contains hostile unchanged; nil: no JSON
}

// hostileRuns lists all commands with all ways in which they receive strings.
func hostileRuns() map[string]hostileRun {
	spoilt := fakegen.Script{Chat: true, Spoil: fakegen.Spoil(hostile)}
	failing := spoilt
	failing.Ending, failing.Error = fakegen.Fail, protocol.Errorf(protocol.CodeInternal, "", "")
	refusing := spoilt
	refusing.Refusal = protocol.Errorf(protocol.CodeInternal, "", "")
	plain := spoilt // except for the text of tokens
	plain.Spoil = fakegen.Spoil(hostile, "Text")
	plainFailing := failing
	plainFailing.Spoil = plain.Spoil
	known := fakegen.Script{Chat: true, Loading: 2, Spoil: fakegen.Spoil(hostile, "Code", "State")}
	closing := known
	closing.Loading, closing.Refusal = 0, protocol.Errorf(protocol.CodeOverloaded, "", "")
	base := known
	base.Loading, base.Chat = 0, false
	untemplated := plain
	untemplated.Chat = false
	return map[string]hostileRun{
		"generate":         {args: []string{"x"}, script: spoilt, answer: true},
		"timings":          {args: []string{"--timings", "x"}, script: spoilt, answer: true},
		"timings, names":   {args: []string{"--timings", "x"}, script: plain},
		"error, names":     {args: []string{"x"}, script: plainFailing, exit: exitFailed},
		"chat, names":      {args: []string{"chat", "--timings"}, script: plain, input: "x\n/exit\n"},
		"chat, error name": {args: []string{"chat"}, script: plainFailing, input: "x\n/exit\n"},
		"json":             {args: []string{"--json", "--logprobs=2", "x"}, script: spoilt, json: holds("text")},
		"jsonl":            {args: []string{"--jsonl", "--logprobs=2", "x"}, script: spoilt, json: holds("text")},
		"error":            {args: []string{"--timings", "x"}, script: failing, answer: true, exit: exitFailed},
		"error, json":      {args: []string{"--json", "x"}, script: failing, json: holds("text"), exit: exitFailed},
		"error, jsonl":     {args: []string{"--jsonl", "x"}, script: failing, json: holds("code"), exit: exitFailed},
		"refusal":          {args: []string{"x"}, script: refusing, exit: exitFailed},
		"refusal, known":   {args: []string{"x"}, script: closing, exit: exitBusy},
		"loading":          {args: []string{"x"}, script: known, answer: true},
		"loading, no wait": {args: []string{"--wait", "0", "x"}, script: known, exit: exitNoGenerator},
		"chat":             {args: []string{"chat", "--timings"}, script: spoilt, input: "x\n/exit\n", answer: true},
		"chat, error":      {args: []string{"chat"}, script: failing, input: "x\n/exit\n", answer: true},
		"chat, base model": {args: []string{"chat"}, script: base, exit: exitUsage},
		"no template":      {args: []string{"x"}, script: untemplated},
		"status":           {args: []string{"status"}, script: spoilt},
		"status, known":    {args: []string{"status"}, script: known},
		"status, json":     {args: []string{"status", "--json"}, script: spoilt, json: holds("state", "model")},
		"top":              {args: []string{"top", "-n", "2", "--interval", "60ms"}, script: spoilt},
		"tokenize":         {args: []string{"tokenize", "--wait", "0", "x"}, script: failing, exit: exitFailed},
	}
}

// holds returns a test of whether one of these fields of an object is exactly hostile.
func holds(fields ...string) func(any) bool {
	return func(v any) bool {
		object, _ := v.(map[string]any)
		for _, f := range fields {
			if object[f] == hostile {
				return true
			}
		}
		return false
	}
}

// TestHostileStrings: when a generator puts hostile into each string of its replies, no
// command prints anything that a terminal acts on or that reorders or hides text. In
// answers, characters that join others or mark their direction pass.
func TestHostileStrings(t *testing.T) {
	for name, run := range hostileRuns() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serveHostile(t, run.script)
			shown, exit := onTerminal(t, run.input, append([]string{"--socket", socket}, run.args...)...)
			if exit != run.exit {
				t.Errorf("exit code %d, want %d", exit, run.exit)
			}
			checkShown(t, shown, run.answer)
			if run.json != nil {
				checkJSON(t, shown, run.json)
			}
		})
	}
}

// TestHostilePrograms: text of other programs is escaped too: a record beside the
// socket, and the output of reel-generator doctor.
func TestHostilePrograms(t *testing.T) {
	dir := shortDir(t)
	failure := &protocol.Failure{Code: hostile, Message: hostile, Hint: hostile}
	record, err := json.Marshal(protocol.Record{State: protocol.StateFailed, Failure: failure})
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nprintf '%s\\n\\233' '" + hostile + "'\nprintf '%s\\n' '" + hostile + "' >&2\n"
	for path, text := range map[string]string{"g.state": string(record), "reel-generator": script} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, args := range [][]string{{"status", "--wait", "0"}, {"status", "--wait", "0", "--json"}, {"doctor"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			shown, _ := onTerminal(t, "", append([]string{"--socket", filepath.Join(dir, "g.sock")}, args...)...)
			if args[0] == "doctor" { // a program's output may have any lines
				shown = strings.ReplaceAll(shown, "\nreel: forged", "")
			}
			checkShown(t, shown, false)
		})
	}
}

// TestHostilePiped: on a pipe standard output is exact; standard error is still escaped.
func TestHostilePiped(t *testing.T) {
	socket := serveHostile(t, fakegen.Script{Spoil: fakegen.Spoil(hostile)})
	cmd := reelCommand(t, "--socket", socket, "--timings", "x")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != hostile {
		t.Errorf("standard output is %q", stdout.String())
	}
	checkShown(t, stderr.String(), false)
}

// checkShown searches the output for raw characters, and for a message, code or name
// that begins a line of its own.
func checkShown(t *testing.T, shown string, answer bool) {
	t.Helper()
	if !strings.Contains(shown, "<") || answer && !strings.Contains(shown, "\u200c\u200d\u200e\u200f") {
		t.Errorf("the generator's text is missing: %q", shown)
	}
	for _, thought := range reasoning.FindAllStringSubmatch(shown, -1) {
		checkRaw(t, thought[1], true)
	}
	rest := ownSequences.ReplaceAllString(reasoning.ReplaceAllString(shown, ""), "\n")
	checkRaw(t, rest, answer)
	if !answer && regexp.MustCompile(`(?m)^reel: forged`).MatchString(rest) {
		t.Errorf("a line is forged: %q", rest)
	}
}

// reasoning matches the reasoning on a terminal.
var reasoning = regexp.MustCompile(`(?s)\x1b\[2m(.*?)\x1b\[22m`)

// checkRaw searches a text for raw characters.
func checkRaw(t *testing.T, rest string, answer bool) {
	t.Helper()
	for _, r := range rest {
		bidi := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		hidden := unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r == unicode.ReplacementChar || bidi || hidden && !answer {
			t.Errorf("%U is printed raw in %q", r, rest)
			break
		}
	}
}

// checkJSON checks that each line that begins an object is valid JSON, and that one of
// the objects holds the text unchanged.
func checkJSON(t *testing.T, shown string, holds func(any) bool) {
	t.Helper()
	found := false
	for _, line := range regexp.MustCompile(`(?m)^\{.*$`).FindAllString(strings.ReplaceAll(shown, "\r\n", "\n"), -1) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%v: %q", err, line)
		}
		found = found || holds(v)
	}
	if !found {
		t.Errorf("no JSON holds the generator's text: %q", shown)
	}
}

// shortDir returns a directory with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serveHostile serves script and returns the socket.
func serveHostile(t *testing.T, script fakegen.Script) string {
	t.Helper()
	return serve(t, fakegen.New(script))
}

// serve starts g and returns its socket.
func serve(t *testing.T, g *fakegen.Generator) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "g.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go g.Serve(l)
	return path
}

// reelCommand returns a command that runs reel: this test program under that name.
func reelCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(shortDir(t), "reel")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "TERM=xterm", quietly+"=1")
	return cmd
}

// onTerminal runs reel on a terminal on which input is typed. It returns the terminal's
// output and the exit code.
func onTerminal(t *testing.T, input string, args ...string) (shown string, exit int) {
	t.Helper()
	ours, theirs, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	cmd := reelCommand(t, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if _, err := io.WriteString(ours, input); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(ours) // a terminal ends with EIO
	err = cmd.Wait()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() < 0 {
		t.Fatal("ended with " + strconv.Quote(cmd.ProcessState.String()))
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestStrangerIsNamed: a listener that belongs to neither this user nor root is named
// once: before a completion on a terminal, in status and top, and in errors.
func TestStrangerIsNamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a socket of another user needs root")
	}
	for _, uid := range []int{0, 65534} {
		path := filepath.Join(shortDir(t), "g.sock")
		l, err := fakegen.ListenAs(path, uid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go fakegen.New(fakegen.Script{Chat: true, Loading: 2, Pieces: []string{"x"}}).Serve(l)
		for args, want := range map[string]int{
			"x": 1, "chat": 1, "status": 1, "top -n 1": 1, "--wait 0 --tokens 1": 1, "status --json": 0,
		} {
			t.Run(strconv.Itoa(uid)+" "+args, func(t *testing.T) {
				shown, _ := onTerminal(t, "/exit\n", append([]string{"--socket", path}, strings.Fields(args)...)...)
				if uid == 0 {
					want = 0
				}
				if n := strings.Count(shown, "uid 65534"); n != want {
					t.Errorf("named %d times, want %d: %q", n, want, shown)
				}
			})
		}
		// Errors name it without a terminal too, for logs.
		refusing := filepath.Join(shortDir(t), "g.sock")
		l, err = fakegen.ListenAs(refusing, uid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go fakegen.New(fakegen.Script{Refusal: protocol.Errorf(protocol.CodeDenied, "", "no")}).Serve(l)
		cmd := reelCommand(t, "--socket", refusing, "x")
		messages, err := cmd.CombinedOutput()
		if named := strings.Contains(string(messages), "uid 65534"); err == nil || named != (uid != 0) {
			t.Errorf("%v: %q", err, messages)
		}
	}
}
