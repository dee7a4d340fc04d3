//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

// forgetful is a chat template that leaves out the first word of earlier answers, as others leave out thoughts, and
// strips them.
const forgetful = `{{ bos_token }}{% for m in messages %}{{ m.role|upper }}: ` +
	`{{ m.content.strip().split(' ', 1)[-1] if m.role == 'assistant' else m.content }}` + "\n" +
	`{% endfor %}ASSISTANT:`

// talk is a conversation with a generator, of messages or, without a template, of tokens.
type talk struct {
	messages []client.Message
	tokens   []int32
}

// ask asks for the next answer, greedily. It returns its text and what was counted.
func (c *talk) ask(t *testing.T, to *client.Client, cache string) (text string, ids []int32, usage protocol.Usage) {
	t.Helper()
	var done client.Done
	for token, err := range to.Generate(t.Context(), client.Request{Messages: c.messages, Tokens: c.tokens,
		MaxTokens: new(35), IgnoreEOS: true, Temperature: new(0.0), Cache: cache, Done: &done}) {
		must(t, err)
		text, ids = text+token.Text, append(ids, token.Token)
	}
	return text, ids, done.Usage
}

// turn takes a turn with new words. It returns how many tokens of the history were computed.
func (c *talk) turn(t *testing.T, to *client.Client, raw, compare bool, words string) int {
	t.Helper()
	added, err := to.Tokenize(t.Context(), "USER: "+words+"\nASSISTANT:")
	must(t, err)
	if raw {
		c.tokens = append(c.tokens, added...)
	} else {
		c.messages = append(c.messages, client.Message{Role: "user", Content: words})
	}
	text, ids, usage := c.ask(t, to, "")
	if compare {
		if alone, _, _ := c.ask(t, to, "off"); alone != text {
			t.Errorf("%q from the cache, %q without", text, alone)
		}
	}
	if raw {
		c.tokens = append(c.tokens, ids...)
	} else {
		c.messages = append(c.messages, client.Message{Role: "assistant", Content: text})
	}
	return usage.PromptTokens - usage.CachedTokens - len(added)
}

// Each turn of a conversation computes its new words alone: what came before them was read again as the template
// renders it now. The answers are those without a cache.
func TestConversationPaysForNewWords(t *testing.T) {
	const joint = 2 // tokens: words may be cut in another way after the history than alone
	dir := filepath.Join(tempDir(t), "forgetful")
	must(t, os.CopyFS(dir, tiny.Files))
	must(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(forgetful), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
		[]byte(`{"bos_token":"<|begin_of_text|>"}`), 0o600))
	for mode, turns := range map[string]int{"chat": 20, "all": 5, "off": 3} {
		t.Run(mode, func(t *testing.T) {
			reread := mode != "off"
			g := serve(t, "--model", dir, "--reread", mode)
			to, c, most := g.client(), &talk{}, 0
			for i := range turns {
				most = max(most, c.turn(t, to, mode == "all", i%5 == 4, fmt.Sprint("And ", i, "?")))
				if reread {
					g.eventually("the answer is read again",
						func() bool { return g.status().Steps.Rereads == uint64(i+1) })
				}
			}
			if reread != (most <= joint) {
				t.Errorf("a turn computed %d tokens of the history", most)
			}
			if s := g.status(); s.Requests.Running+s.Requests.Waiting != 0 || (s.Steps.RereadTokens > 0) != reread {
				t.Errorf("%+v, %+v", s.Requests, s.Steps)
			}
		})
	}
}

// thoughtful is a chat template that keeps what the model thought, in tags that the prompt opens.
const thoughtful = `{{ bos_token }}{% for m in messages %}{{ m.role|upper }}: ` +
	`{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}` + "\n" +
	`{% endfor %}ASSISTANT: <think>`

// Reasoning that comes apart is read again where the next turn has it: in the message's reasoning, not in its text.
func TestReasoningIsReread(t *testing.T) {
	t.Parallel()
	path := filepath.Join(tempDir(t), "template")
	must(t, os.WriteFile(path, []byte(thoughtful), 0o600))
	g := serve(t, "--chat-template", path, "--reread", "chat")
	to := g.client()
	var messages []client.Message
	for i := range 4 {
		words := fmt.Sprint("And ", i, "?")
		added, err := to.Tokenize(t.Context(), "</think>\nUSER: "+words+"\nASSISTANT: <think>")
		must(t, err)
		messages = append(messages, client.Message{Role: "user", Content: words})
		var done client.Done
		answer := client.Message{Role: "assistant"}
		for token, err := range to.Generate(t.Context(), client.Request{Messages: messages, MaxTokens: new(40), IgnoreEOS: true,
			Temperature: new(0.0), Reasoning: protocol.ReasoningApart, Done: &done}) {
			must(t, err)
			answer.Content, answer.Reasoning = answer.Content+token.Text, answer.Reasoning+token.Reasoning
		}
		messages = append(messages, answer)
		if n := done.Usage.PromptTokens - done.Usage.CachedTokens - len(added); answer.Reasoning == "" || i > 0 && n > 2 {
			t.Errorf("turn %d computes %d tokens of the history; reasoning %q, text %q", i, n, answer.Reasoning, answer.Content)
		}
		g.eventually("the answer is read again", func() bool { return g.status().Steps.Rereads == uint64(i+1) })
	}
}
