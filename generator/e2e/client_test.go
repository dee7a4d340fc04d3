//go:build linux

package e2e

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// run runs a process to its end, checks the exit code, and returns its standard output.
func (p *process) run(code int) string {
	p.t.Helper()
	p.start().wantExit(code)
	return p.stdout.String()
}

// short returns flags for a completion of this many tokens that is always the same.
func short(tokens string, more ...string) []string {
	return append([]string{"--temperature", "0", "--ignore-eos", "--max-tokens", tokens}, more...)
}

// completion is the output of --json.
type completion struct {
	Text         string  `json:"text"`
	Tokens       []int32 `json:"tokens"`
	FinishReason string  `json:"finish_reason"`
	Usage        struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// The prompt comes from words, standard input, a file, or as tokens. Words that begin with a subcommand's name are a
// prompt too.
func TestPrompts(t *testing.T) {
	t.Parallel()
	g := serve(t)
	file := filepath.Join(tempDir(t), "prompt")
	must(t, os.WriteFile(file, []byte("one\n\ntwo\n"), 0o600))
	tokens := decode[struct{ Tokens []int32 }](t, g.reel("tokenize", "--json", "one\n\ntwo").run(0)).Tokens
	if len(tokens) < 3 {
		t.Fatalf("tokens %v", tokens)
	}
	want := g.reel(short("8", "one\n\ntwo")...).run(0)
	list := strings.Trim(strings.ReplaceAll(string(mustJSON(t, tokens)), " ", ""), "[]")
	for name, p := range map[string]*process{
		"words and input": input(g.reel(short("8", "one")...), "two\n"),
		"input":           input(g.reel(short("8")...), "one\n\ntwo\n"),
		"file":            g.reel(short("8", "-f", file)...),
		"tokens":          g.reel(short("8", "--tokens", list)...),
		"after --":        g.reel(short("8", "--", "one\n\ntwo")...),
	} {
		if got := p.run(0); got != want || got == "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if text := g.reel("status").run(0); !strings.Contains(text, "ready") {
		t.Errorf("status says %q", text)
	}
	for _, words := range [][]string{{"status", "of", "the", "union"}, {"--", "status"}, {"help", "me"}} {
		got := decode[completion](t, g.reel(short("3", append([]string{"--json"}, words...)...)...).run(0))
		if got.Usage.Completion != 3 || got.FinishReason != "length" {
			t.Errorf("%q is not a prompt: %+v", words, got)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	text, err := json.Marshal(v)
	must(t, err)
	return text
}

func input(p *process, text string) *process {
	p.cmd.Stdin = strings.NewReader(text)
	return p
}

// Standard output contains only the completion; timings go to standard error.
func TestOutputs(t *testing.T) {
	t.Parallel()
	g := serve(t)
	p := g.reel(short("16", "--timings", "ROMEO:")...)
	text := p.run(0)
	line := p.stderr.String()
	for _, want := range []string{"ttft ", " ms", " tok/s", "total ", "16 tokens"} {
		if !strings.Contains(line, want) || strings.Count(line, "\n") != 1 {
			t.Errorf("the timings are %q, without %q", line, want)
		}
	}
	one := g.reel(short("16", "--json", "ROMEO:")...)
	got := decode[completion](t, one.run(0))
	if got.Text != text || len(got.Tokens) != 16 || one.stderr.String() != "" {
		t.Errorf("--json: %+v and %q, want the text %q", got, one.stderr.String(), text)
	}
	lines := strings.Split(strings.TrimSpace(g.reel(short("16", "--jsonl", "ROMEO:")...).run(0)), "\n")
	var joined strings.Builder
	for _, line := range lines {
		joined.WriteString(decode[completion](t, line).Text)
	}
	if len(lines) < 17 || joined.String() != text {
		t.Errorf("--jsonl: %d lines with %q, want %q", len(lines), joined.String(), text)
	}
}

// Without a terminal the log is JSON. It contains neither prompts nor completions.
func TestLog(t *testing.T) {
	t.Parallel()
	g := serve(t, "--log-level", "debug")
	text := g.reel(short("16", "Zounds, Mercutio!")...).run(0)
	g.quiet()
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
	log := g.stderr.String()
	for _, line := range strings.Split(strings.TrimSpace(log), "\n") {
		if fields := decode[map[string]any](t, line); fields["level"] == nil || fields["msg"] == nil {
			t.Errorf("a line without level or message: %s", line)
		}
	}
	if strings.Contains(log, "Mercutio") || strings.Contains(log, strings.TrimSpace(text)) {
		t.Errorf("the log contains a prompt or a completion: %s", log)
	}
}

// A closed pipe, as in reel … | head -c 10, ends the request without a message.
func TestClosedPipe(t *testing.T) {
	g := serve(t)
	read, write, err := os.Pipe()
	must(t, err)
	p := g.reel(short("1000", "ROMEO:")...)
	p.cmd.Stdout = write
	p.start()
	must(t, write.Close())
	if _, err := io.ReadFull(read, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	must(t, read.Close())
	p.wantExit(0)
	g.wantCancelled(1)
	if text := p.stderr.String(); text != "" {
		t.Errorf("stderr is %q", text)
	}
}

// Ctrl-C ends the request on the generator too.
func TestInterrupt(t *testing.T) {
	g := serve(t)
	for i, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		read, write, err := os.Pipe()
		must(t, err)
		p := g.reel(short("1000", "ROMEO:")...)
		p.cmd.Stdout = write
		p.start()
		must(t, write.Close())
		if _, err := io.ReadFull(read, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p.signal(s)
		p.wantExit(128 + int(s))
		must(t, read.Close())
		g.wantCancelled(i + 1)
	}
}

// wantCancelled waits until nothing runs, and checks that n requests were cancelled and none finished.
func (g *generator) wantCancelled(n int) {
	g.t.Helper()
	g.quiet()
	if r := g.status().Requests; int(r.Cancelled) != n || r.Finished > 0 {
		g.t.Errorf("%+v, want %d cancelled", r, n)
	}
}

// Without a generator the client names the command that starts one. Each failure has its exit code.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"no socket":     {69, []string{"--wait", "0", "--socket", filepath.Join(dir, "none.sock"), "hi"}},
		"no directory":  {69, []string{"--wait", "1h", "--socket", filepath.Join(dir, "missing", "none.sock"), "hi"}},
		"path too long": {78, []string{"--socket", "/tmp/" + strings.Repeat("x", 200), "hi"}},
		"no such flag":  {64, []string{"--no-such-flag", "hi"}},
	} {
		p := prepare(t, "reel", c.args...)
		p.run(c.code)
		if c.code == 69 && !strings.Contains(p.stderr.String(), "reel-generator") {
			t.Errorf("%s: stderr is %q", name, p.stderr.String())
		}
	}
	g := serve(t)
	g.reel("--temperature", "-1", "hi").run(64)
	g.reel("--max-tokens", "1", strings.Repeat("?! ", g.limits.Context)).run(64)
	denied := g.reel("hi")
	if os.Getuid() == 0 {
		must(t, os.Chmod(binaries, 0o755))
		denied.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	} else {
		must(t, os.Chmod(g.socket, 0))
	}
	denied.run(77)
}
