package gateway

import (
	"math"
	"net/http"
	"strings"
	"sync"

	"reel.internal/reel/client"
)

// delta is what a chunk adds to a chat's message.
type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	thought
	ToolCalls []callDelta `json:"tool_calls,omitempty"`
}

// thought is what a model thinks before it answers, by both names that clients read: that of DeepSeek and
// llama.cpp, and that of vLLM and OpenRouter.
type thought struct {
	ReasoningContent string `json:"reasoning_content,omitempty"`
	Reasoning        string `json:"reasoning,omitempty"`
}

// callDelta is a piece of a tool call. The first of a call has id, type and name.
type callDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatDelta struct {
	Index    int           `json:"index"`
	Delta    delta         `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// chatLogprobs are log-probabilities in the form of chats.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal *struct{}     `json:"refusal"`
}

type chatLogprob struct {
	chatAlternative
	Top []chatAlternative `json:"top_logprobs"`
}

type chatAlternative struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// leastLogprob stands for a log-probability that JSON cannot write, as in OpenAI's API.
const leastLogprob = -9999

// finite returns a log-probability as JSON can write it.
func finite(logprob float64) float64 {
	if math.IsInf(logprob, 0) || math.IsNaN(logprob) {
		return leastLogprob
	}
	return logprob
}

func newAlternative(text string, logprob float64) chatAlternative {
	a := chatAlternative{text, finite(logprob), make([]int, len(text))}
	for i, b := range []byte(text) {
		a.Bytes[i] = int(b)
	}
	return a
}

// logprobOf returns the log-probabilities of a token that has them.
func logprobOf(t *client.Token) chatLogprob {
	l := chatLogprob{newAlternative(t.Reasoning+t.Text, *t.Logprob), []chatAlternative{}}
	for _, other := range t.Top {
		l.Top = append(l.Top, newAlternative(other.Text, other.Logprob))
	}
	return l
}

// chatStream sends a chat in chunks.
type chatStream struct {
	events
	began []bool // by choice: the role has been sent
}

// chunk returns the chunk with d.
func (c *chatStream) chunk(d chatDelta) chunk[chatDelta] {
	return chunk[chatDelta]{c.envelope, []chatDelta{d}, c.noUsage()}
}

// role returns the first chunk of a choice.
func (c *chatStream) role(choice int) chunk[chatDelta] {
	c.began[choice] = true
	return c.chunk(chatDelta{Index: choice, Delta: delta{Role: "assistant", Content: new("")}})
}

// token sends what a token adds. A token without text adds nothing, but shows that the answer has begun.
func (c *chatStream) token(choice int, t *client.Token) error {
	d := chatDelta{Index: choice, Delta: deltaOf(t)}
	if t.Logprob != nil {
		d.Logprobs = &chatLogprobs{Content: []chatLogprob{logprobOf(t)}}
	}
	empty := d.Delta.Content == nil && d.Delta.Reasoning == "" && d.Delta.ToolCalls == nil && d.Logprobs == nil
	switch {
	case !c.began[choice] && empty:
		return c.send(c.role(choice))
	case !c.began[choice]:
		return c.send(c.role(choice), c.chunk(d))
	case empty:
		return nil
	}
	return c.send(c.chunk(d))
}

func deltaOf(t *client.Token) delta {
	d := delta{thought: thought{t.Reasoning, t.Reasoning}}
	if t.Text != "" {
		d.Content = &t.Text
	}
	for _, p := range t.Calls {
		call := callDelta{Index: p.Index, ID: p.ID, Function: functionDelta{p.Name, p.Arguments}}
		if p.Name != "" {
			call.Type = "function"
		}
		d.ToolCalls = append(d.ToolCalls, call)
	}
	return d
}

// done sends the last chunk of a choice.
func (c *chatStream) done(choice int, d *client.Done) error {
	c.count(choice, d)
	last := c.chunk(chatDelta{Index: choice, Finish: &d.FinishReason})
	if !c.began[choice] {
		return c.send(c.role(choice), last)
	}
	return c.send(last)
}

// chatAnswer collects a chat.
type chatAnswer struct {
	envelope
	Choices []chatChoice `json:"choices"`
	Usage   usage        `json:"usage"`

	logprobs bool
	mu       sync.Mutex
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  chatReply     `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`

	text, reasoning strings.Builder
}

type chatReply struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	thought
	ToolCalls []chatCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal"`
}

func (c *chatAnswer) token(choice int, t *client.Token) error {
	to := &c.Choices[choice]
	to.text.WriteString(t.Text)
	to.reasoning.WriteString(t.Reasoning)
	for _, p := range t.Calls {
		if err := to.Message.call(p); err != nil {
			return err
		}
	}
	if t.Logprob != nil {
		to.add(logprobOf(t))
	}
	return nil
}

// errCallOrder means that the generator broke the protocol: calls come one after another.
var errCallOrder = &apiError{status: http.StatusBadGateway, code: "bad_generator",
	message: "the generator sent a piece of a tool call that has not begun (report it with the generator's version)"}

// call adds a piece of a tool call.
func (m *chatReply) call(p client.CallPiece) error {
	if p.Index == len(m.ToolCalls) {
		m.ToolCalls = append(m.ToolCalls, chatCall{Type: "function"})
	}
	if p.Index < 0 || p.Index >= len(m.ToolCalls) {
		return errCallOrder
	}
	call := &m.ToolCalls[p.Index]
	call.ID += p.ID
	call.Function.Name += p.Name
	call.Function.Arguments += p.Arguments
	return nil
}

func (c *chatChoice) add(l chatLogprob) {
	if c.Logprobs == nil {
		c.Logprobs = &chatLogprobs{}
	}
	c.Logprobs.Content = append(c.Logprobs.Content, l)
}

func (c *chatAnswer) done(choice int, d *client.Done) error {
	c.Choices[choice].Finish = d.FinishReason
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Usage.add(d, choice == 0)
	return nil
}

func (c *chatAnswer) finish() {
	for i := range c.Choices {
		to := &c.Choices[i]
		to.Index, to.Message.Role = i, "assistant"
		to.Message.thought = thought{to.reasoning.String(), to.reasoning.String()}
		if to.text.Len() > 0 || to.Message.ToolCalls == nil {
			to.Message.Content = new(to.text.String())
		}
		if c.logprobs && to.Logprobs == nil {
			to.Logprobs = &chatLogprobs{Content: []chatLogprob{}}
		}
	}
}
