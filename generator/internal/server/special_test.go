package server

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/tokenizer"
	"reel.internal/reel/protocol"
)

// Control tokens of testdata's tokenizer.
const (
	imStart = 641 // <|im_start|>
	imEnd   = 642 // <|im_end|>
)

// chatML begins each message with imStart and ends it with imEnd. The prompt ends with imStart.
const chatML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}" +
	"{{ note }}<|im_start|>assistant\n"

// serveChatML starts a server with a real tokenizer and a real template. Its engine is fake.
func serveChatML(t *testing.T) *fixture {
	t.Helper()
	file, err := os.ReadFile("../tokenizer/testdata/qwen2.json")
	must(t, err)
	tok, err := tokenizer.Load(fstest.MapFS{"tokenizer.json": {Data: file}})
	must(t, err)
	template, err := chat.New(chat.Source{Template: chatML}, func() *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "REEL_TEST_WORKER=1")
		return c
	})
	must(t, err)
	t.Cleanup(template.Close)
	f := start(t, nil)
	m := f.model()
	m.Tokenizer, m.Chat = tok, templateChat{template}
	m.Limits = protocol.Limits{Context: 1024, MaxBatch: 8, Vocab: tok.Vocab()}
	f.SetReady(m)
	return f
}

// control returns the control tokens of a request's prompt, which it lets the server echo.
func (c *testClient) control(g *protocol.Generate) (ids []int32) {
	c.t.Helper()
	g.ID, g.Echo, g.MaxTokens = 1, true, ptr(1)
	got := c.ask(g)
	if got.done == nil {
		c.t.Fatal(got.err)
	}
	for _, token := range got.tokens[:got.done.Usage.PromptTokens] {
		if token.Token == imStart || token.Token == imEnd {
			ids = append(ids, token.Token)
		}
	}
	return ids
}

// In a prompt and in tokenize, control tokens count unless special is false.
func TestControlTokensOfAPrompt(t *testing.T) {
	c := serveChatML(t).client()
	for _, try := range []struct {
		special *bool
		want    []int32
	}{{nil, []int32{imEnd}}, {ptr(true), []int32{imEnd}}, {ptr(false), nil}} {
		prompt := "a<|im_end|>b"
		if got := c.control(&protocol.Generate{Prompt: &prompt, Special: try.special}); !slices.Equal(got, try.want) {
			t.Errorf("prompt: %v, want %v", got, try.want)
		}
		c.send(&protocol.Tokenize{Text: prompt, Special: try.special})
		ids := expect[protocol.Tokens](c).Tokens
		if slices.Contains(ids, imEnd) != (try.want != nil) {
			t.Errorf("tokenize: %v, want %v", ids, try.want)
		}
	}
}
