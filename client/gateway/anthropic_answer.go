package gateway

import (
	"crypto/rand"
	"encoding/json"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// anthropicReply is the object that /v1/messages answers.
type anthropicReply struct {
	ID           string                `json:"id"`
	Type         string                `json:"type"`
	Role         string                `json:"role"`
	Model        string                `json:"model"`
	Content      []anthropicReplyBlock `json:"content"`
	StopReason   *string               `json:"stop_reason"`
	StopSequence *string               `json:"stop_sequence"`
	Usage        anthropicUsage        `json:"usage"`
}

// anthropicReplyBlock is a block of an answer. A nil field is none of its kind.
type anthropicReplyBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// anthropicUsage counts the tokens of an answer. Those of the prompt that were cached are not among Input.
type anthropicUsage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

// signature stands for the one by which Anthropic knows its own thinking again. Clients drop thinking without one.
const signature = "reel"

// anthropicAnswer collects an answer.
type anthropicAnswer struct {
	anthropicReply
	parts
	omitted bool // thinking is not shown
	most    int  // max_tokens
}

func newAnthropicAnswer(q *anthropicRequest, m model) anthropicAnswer {
	return anthropicAnswer{
		anthropicReply: anthropicReply{ID: "msg_" + rand.Text(), Type: "message", Role: "assistant", Model: m.name,
			Content: []anthropicReplyBlock{}},
		omitted: q.Thinking != nil && q.Thinking.Display == "omitted",
		most:    *q.MaxTokens,
	}
}

func (a *anthropicAnswer) token(_ int, t *client.Token) error { return a.take(t) }

// done ends the answer.
func (a *anthropicAnswer) done(_ int, d *client.Done) error {
	a.close()
	if a.StopReason = new(a.reason(d)); *a.StopReason == "stop_sequence" {
		a.StopSequence = &d.Stop
	}
	a.Usage = anthropicUsage{Input: d.Usage.PromptTokens - d.Usage.CachedTokens, CacheRead: d.Usage.CachedTokens,
		Output: d.Usage.CompletionTokens}
	return nil
}

// reason returns Anthropic's name of the reason why an answer has ended.
func (a *anthropicAnswer) reason(d *client.Done) string {
	switch {
	case d.FinishReason == protocol.FinishToolCalls:
		return "tool_use"
	case d.FinishReason == protocol.FinishLength && d.Usage.CompletionTokens < a.most:
		return "model_context_window_exceeded"
	case d.FinishReason == protocol.FinishLength:
		return "max_tokens"
	case d.Stop != "":
		return "stop_sequence"
	}
	return "end_turn"
}

// finish puts the blocks into the content. A call that the answer's end has cut is left out: its input is no object.
func (a *anthropicAnswer) finish() {
	for _, p := range a.list {
		b := a.block(p)
		switch text := p.text.String(); {
		case p.kind == textPart:
			b.Text = &text
		case p.kind == reasoningPart:
			b.Signature = new(signature)
			if !a.omitted {
				b.Thinking = &text
			}
		case text != "" && !json.Valid([]byte(text)):
			continue
		case text != "":
			b.Input = json.RawMessage(text)
		}
		a.Content = append(a.Content, b)
	}
}

// block returns the block of a part before its text.
func (a *anthropicAnswer) block(p *part) anthropicReplyBlock {
	switch p.kind {
	case reasoningPart:
		return anthropicReplyBlock{Type: "thinking", Thinking: new(""), Signature: new("")}
	case callPart:
		return anthropicReplyBlock{Type: "tool_use", ID: p.id, Name: p.name, Input: json.RawMessage("{}")}
	}
	return anthropicReplyBlock{Type: "text", Text: new("")}
}

// anthropicEvent is an event of a streamed answer. Each type has some of the fields.
type anthropicEvent struct {
	Type    string               `json:"type"`
	Message *anthropicReply      `json:"message,omitempty"`
	Index   *int                 `json:"index,omitempty"`
	Block   *anthropicReplyBlock `json:"content_block,omitempty"`
	Delta   any                  `json:"delta,omitempty"`
	Usage   *anthropicUsage      `json:"usage,omitempty"`
}

func (e anthropicEvent) event() string { return e.Type }

// anthropicDelta is what a block has more.
type anthropicDelta struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"`
	JSON      string `json:"partial_json,omitempty"`
}

// anthropicEnd is how a message has ended.
type anthropicEnd struct {
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// anthropicPing is the sign of life of a silent stream.
const anthropicPing = "event: ping\ndata: {\"type\": \"ping\"}\n\n"

// anthropicStream sends an answer in events.
type anthropicStream struct {
	anthropicAnswer
	*stream
	begun  bool  // the first event has been made
	events []any // that are not sent yet
}

func newAnthropicStream(a anthropicAnswer) *anthropicStream {
	s := &anthropicStream{anthropicAnswer: a}
	s.to = s
	return s
}

// open gives the events their stream.
func (s *anthropicStream) open(to *stream) {
	s.stream = to
	to.signs(anthropicPing)
}

// start adds the first event. The prompt's tokens are known at the end.
func (s *anthropicStream) start() {
	if !s.begun {
		s.begun = true
		now := s.anthropicReply
		s.emit(anthropicEvent{Type: "message_start", Message: &now})
	}
}

// emit adds an event.
func (s *anthropicStream) emit(e anthropicEvent) { s.events = append(s.events, e) }

// flush sends the events.
func (s *anthropicStream) flush() error {
	if len(s.events) == 0 {
		return nil
	}
	defer func() { s.events = s.events[:0] }()
	return s.send(s.events...)
}

// token sends what a token adds. A token without text adds nothing, but shows that the answer has begun.
func (s *anthropicStream) token(choice int, t *client.Token) error {
	s.start()
	if err := s.anthropicAnswer.token(choice, t); err != nil {
		return err
	}
	return s.flush()
}

// done sends the last events.
func (s *anthropicStream) done(choice int, d *client.Done) error {
	s.start()
	if err := s.anthropicAnswer.done(choice, d); err != nil {
		return err
	}
	s.emit(anthropicEvent{Type: "message_delta", Delta: anthropicEnd{s.StopReason, s.StopSequence}, Usage: &s.Usage})
	s.emit(anthropicEvent{Type: "message_stop"})
	return s.flush()
}

// last sends nothing: a message says itself that it has ended.
func (s *anthropicStream) last() error { return nil }

// began adds the event with which a block begins.
func (s *anthropicStream) began(p *part) {
	b := s.block(p)
	s.emit(anthropicEvent{Type: "content_block_start", Index: &p.index, Block: &b})
}

// grew adds the event with more of a block.
func (s *anthropicStream) grew(p *part, text string, _ []chatLogprob) {
	var d anthropicDelta
	switch p.kind {
	case reasoningPart:
		if s.omitted {
			return
		}
		d = anthropicDelta{Type: "thinking_delta", Thinking: text}
	case textPart:
		d = anthropicDelta{Type: "text_delta", Text: text}
	case callPart:
		d = anthropicDelta{Type: "input_json_delta", JSON: text}
	}
	s.emit(anthropicEvent{Type: "content_block_delta", Index: &p.index, Delta: d})
}

// ended adds the event with which a block ends.
func (s *anthropicStream) ended(p *part) {
	if p.kind == reasoningPart {
		s.emit(anthropicEvent{Type: "content_block_delta", Index: &p.index,
			Delta: anthropicDelta{Type: "signature_delta", Signature: signature}})
	}
	s.emit(anthropicEvent{Type: "content_block_stop", Index: &p.index})
}
