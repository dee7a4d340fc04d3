//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

// With a chat template, a prompt is a user's message, --raw sends the text itself, and reel chat sends the whole
// conversation.
func TestChat(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "chatty")
	must(t, os.CopyFS(dir, tiny.Files))
	template := `{{ bos_token }}{% for m in messages %}{{ m.role|upper }}:\n{{ m.content }}\n\n{% endfor %}` +
		`{% if messages[0].content == 'loop' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}` +
		`{% endfor %}{% endif %}ASSISTANT:`
	must(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
		[]byte(`{"bos_token":"<|begin_of_text|>","chat_template":"`+template+`"}`), 0o600))
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
	conversation := said("Speak.") + strings.TrimSuffix(first, "\n") + "\n\n" + said("More!")
	second := g.reel("--raw", "--temperature", "0", "--max-tokens", "8", conversation).run(0)
	chat := input(g.reel("chat", "--temperature", "0", "--max-tokens", "8"), "Speak.\nMore!\n").run(0)
	if wanted := line(first) + line(second); chat != wanted {
		t.Errorf("the chat is %q, want %q", chat, wanted)
	}

	// A template that never ends fails its request after two seconds and no other request.
	p := g.reel("loop")
	p.run(1)
	text := p.stderr.String()
	if !strings.Contains(text, "template_failed") || !strings.Contains(text, "takes more than") {
		t.Errorf("an endless template: %q", text)
	}
	if got := g.reel(short("8", "Speak.")...).run(0); got != want {
		t.Errorf("afterwards: %q, want %q", got, want)
	}
}

// A control token that a conversation spells is text, unless --special is given. A raw prompt's is a control token,
// unless --special=false is given.
func TestSpelledControlTokens(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "special")
	must(t, os.CopyFS(dir, tiny.Files))
	must(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"),
		[]byte("{{ bos_token }}{{ messages[0].content }}{{ note }}"), 0o600))
	g := serve(t, "--model", dir)
	const spelled, id = "<|end_of_text|>", 1
	for _, c := range []struct {
		args []string
		want int // control tokens of the prompt
	}{
		{[]string{spelled}, 0}, {[]string{"--template", "note=" + spelled, "Speak."}, 0}, {[]string{"--special", spelled}, 1},
		{[]string{"--special", "--template", "note=" + spelled, spelled}, 1},
		{[]string{"--raw", spelled}, 1}, {[]string{"--raw", "--special=false", spelled}, 0},
	} {
		got := decode[completion](t, g.reel(short("1", append([]string{"--echo", "--json"}, c.args...)...)...).run(0))
		n := 0
		for _, token := range got.Tokens[:got.Usage.Prompt] {
			if token == id {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%q has %d control tokens, want %d: %v", c.args, n, c.want, got.Tokens)
		}
	}
	p := g.reel("--template", "bos_token="+spelled, "Speak.")
	p.run(64)
	if text := p.stderr.String(); !strings.Contains(text, `bad_request: `) || !strings.Contains(text, `"bos_token"`) {
		t.Errorf("a variable with a name of the template's: %q", text)
	}
}

// line returns text with one newline at its end.
func line(text string) string { return strings.TrimSuffix(text, "\n") + "\n" }

// A base model refuses a chat, since it has no template.
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

// The values of generation_config.json are the defaults of a conversation and not of a prompt. Flags win.
func TestDefaultsOfAConversation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "defaults")
	must(t, os.CopyFS(dir, tiny.Files))
	must(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages[0].content }}"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "generation_config.json"),
		[]byte(`{"temperature":1.5,"top_k":1,"top_p":2}`), 0o600))
	g := serve(t, "--model", dir)
	ask := func(args ...string) string {
		return g.reel(append(args, "--seed", "3", "--max-tokens", "24", "Speak.")...).run(0)
	}
	greedy, free := ask("--temperature", "0"), ask("--temperature", "1.5", "--top-k", "0")
	if got := ask(); got != greedy || greedy == free {
		t.Errorf("%q, want the most probable tokens, %q; without top-k %q", got, greedy, free)
	}
	if raw, want := ask("--raw"), ask("--raw", "--temperature", "0.8", "--top-k", "0"); raw != want {
		t.Errorf("a prompt gets %q, want %q", raw, want)
	}
	status := g.reel("status").run(0)
	if !strings.Contains(status, "by default temperature 1.5, top-k 1, top-p 1, min-p 0, repeat-penalty 1\n") {
		t.Errorf("%q", status)
	}
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
	if text := g.stderr.String(); !strings.Contains(text, "top_p is 2") {
		t.Errorf("no warning: %s", text)
	}
}

// A template that does not compile leaves a model without chat: the log, reel status and the error name the cause,
// and prompts are served.
func TestChatWithABrokenTemplate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "broken")
	must(t, os.CopyFS(dir, tiny.Files))
	must(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{% for m in messages %}{{ m.content }}"),
		0o600))
	g := serve(t, "--model", dir)
	const cause = `the chat template fails: line 1: unexpected end of template`
	p := g.reel("--system", "x", "y")
	p.run(64)
	if text := p.stderr.String(); !strings.Contains(text, "no_chat_template: ") || !strings.Contains(text, cause) {
		t.Errorf("%q", text)
	}
	if text := g.reel("status").run(0); !strings.Contains(text, cause) {
		t.Errorf("%q", text)
	}
	if got := g.reel(short("8", "--raw", "Speak.")...).run(0); got == "" {
		t.Error("no answer to a prompt")
	}
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
	if n := strings.Count(g.stderr.String(), cause); n != 1 {
		t.Errorf("the log names the cause %d times: %s", n, g.stderr.String())
	}
}

// Each end-of-sequence token in generation_config.json ends a completion, whether it names one or several.
func TestStopTokens(t *testing.T) {
	t.Parallel()
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
		config := fmt.Appendf(nil, `{"eos_token_id": `+ids+`}`, stop)
		must(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), config, 0o600))
		g := serve(t, "--model", dir)
		got := decode[completion](t, g.reel("--json", "--temperature", "0", "--max-tokens", "12", "ROMEO:").run(0))
		if got.FinishReason != "stop" || got.Usage.Completion != want || len(got.Tokens) != want {
			t.Errorf("eos_token_id %s: %+v, want %d tokens of %v", ids, got, want, free.Tokens)
		}
		g.signal(syscall.SIGTERM)
		g.wantExit(0)
	}
}

// With a template that opens reasoning at the end of the prompt, and a model that never closes it, the same tokens come
// as reasoning instead of text if the request asks for that. Tools reach the template.
func TestReasoningApart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(tempDir(t), "thinks")
	must(t, os.WriteFile(path,
		[]byte("{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}{{ messages[0].content }}:\n<think>\n"+
			"{% if false %}</think>{% endif %}"), 0o600))
	g := serve(t, "--chat-template", path)
	c := g.client()
	request := client.Request{
		Messages: []client.Message{{Role: "user", Content: "ROMEO"}}, MaxTokens: new(24), Temperature: new(0.0),
		Tools: `[{"type": "function", "function": {"name": "JULIET"}}]`,
	}
	plain := ask(c, request)
	request.Reasoning = protocol.ReasoningApart
	apart := ask(c, request)
	request.ToolChoice = protocol.ToolNone
	none := ask(c, request)
	said, thought := "", ""
	for i, token := range plain.Tokens {
		said += token.Text
		thought += apart.Tokens[i].Reasoning
		if apart.Tokens[i].Text != "" || apart.Tokens[i].Token != token.Token {
			t.Errorf("token %d is %+v, and %+v apart", i, token, apart.Tokens[i])
		}
	}
	if thought == "" || thought != strings.TrimLeft(said, " \n") || plain.Prompt == none.Prompt {
		t.Errorf("text %q, reasoning %q; prompts of %d tokens, %d without tools", said, thought, plain.Prompt, none.Prompt)
	}
	if got := g.reel("--reasoning", "on", "--max-tokens", "8", "ROMEO").run(0); got == "" {
		t.Error("reel prints no reasoning")
	}
	if got := g.reel("--max-tokens", "8", "ROMEO").run(0); got != "" {
		t.Errorf("reel prints %q on a pipe", got)
	}
}
