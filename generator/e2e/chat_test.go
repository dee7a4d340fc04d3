//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reel/generator/tiny"
)

// The embedded model with a chat template chats: a prompt is a user's message,
// --raw is the text itself, and a chat sends all that was said.
func TestChat(t *testing.T) {
	dir := filepath.Join(tempDir(t), "chatty")
	must(t, os.CopyFS(dir, tiny.Files))
	must(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"bos_token":"<|begin_of_text|>","chat_template":`+
		`"{{ bos_token }}{% for m in messages %}{{ m.role|upper }}:\n{{ m.content }}\n\n{% endfor %}{% if messages[0].content == 'loop' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}ASSISTANT:"}`), 0o600))
	g := serve(t, "--model", dir)
	said := func(text string) string { return "USER:\n" + text + "\n\nASSISTANT:" }
	want := g.reel(short("8", "--raw", said("Speak."))...).run(0)
	if got := g.reel(short("8", "Speak.")...).run(0); got != want || got == "" {
		t.Errorf("%q, want %q", got, want)
	}
	if got := g.reel(short("8", "--raw", "Speak.")...).run(0); got == want {
		t.Errorf("--raw makes no difference: %q", got)
	}
	first := g.reel("--temperature", "0", "--max-tokens", "8", "Speak.").run(0)
	second := g.reel("--raw", "--temperature", "0", "--max-tokens", "8", said("Speak.")+strings.TrimSuffix(first, "\n")+"\n\n"+said("More!")).run(0)
	chat := input(g.reel("chat", "--temperature", "0", "--max-tokens", "8"), "Speak.\nMore!\n").run(0)
	if wanted := line(first) + line(second); chat != wanted {
		t.Errorf("the chat is %q, want %q", chat, wanted)
	}

	// A template that never ends costs its request two seconds, and nobody else anything.
	p := g.reel("loop")
	p.run(1)
	if text := p.stderr.String(); !strings.Contains(text, "template_failed") || !strings.Contains(text, "takes more than") {
		t.Errorf("a template without an end: %q", text)
	}
	if got := g.reel(short("8", "Speak.")...).run(0); got != want {
		t.Errorf("afterwards: %q, want %q", got, want)
	}
}

// line gives text that has none a newline.
func line(text string) string { return strings.TrimSuffix(text, "\n") + "\n" }

// A base model says that it has no template.
func TestChatWithABaseModel(t *testing.T) {
	g := serve(t)
	p := g.reel("chat")
	p.run(64)
	if text := p.stderr.String(); !strings.Contains(text, "no_chat_template") {
		t.Errorf("%q", text)
	}
	p = g.reel("--system", "x", "y")
	p.run(64)
	if text := p.stderr.String(); !strings.Contains(text, "no_chat_template: reel-tiny is a base model") {
		t.Errorf("%q", text)
	}
}

// Each token that generation_config.json names ends a completion, be there one
// or several.
func TestStopTokens(t *testing.T) {
	g := serve(t)
	free := decode[completion](t, g.reel(short("12", "--json", "ROMEO:")...).run(0))
	stop := free.Tokens[len(free.Tokens)-1]
	want := 0
	for free.Tokens[want] != stop {
		want++
	}
	for _, ids := range []string{"%d", "[%d]", "[1, %d]", "[%d, 1]"} {
		dir := filepath.Join(tempDir(t), "stops")
		must(t, os.CopyFS(dir, tiny.Files))
		must(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), fmt.Appendf(nil, `{"eos_token_id": `+ids+`}`, stop), 0o600))
		g := serve(t, "--model", dir)
		got := decode[completion](t, g.reel("--json", "--temperature", "0", "--max-tokens", "12", "ROMEO:").run(0))
		if got.FinishReason != "stop" || got.Usage.Completion != want || len(got.Tokens) != want {
			t.Errorf("eos_token_id %s: %+v, want %d tokens of %v", ids, got, want, free.Tokens)
		}
		g.signal(syscall.SIGTERM)
		g.wantExit(0)
	}
}
