package gateway

import (
	"encoding/json"
	"strings"
	"time"

	"reel.internal/reel/client"
)

// ollamaReply is a line of the answer of /api/generate or /api/chat, or the whole of it.
type ollamaReply struct {
	Model     string         `json:"model"`
	CreatedAt time.Time      `json:"created_at"`
	Message   *ollamaMessage `json:"message,omitempty"`  // of chat
	Response  *string        `json:"response,omitempty"` // of generate
	Thinking  string         `json:"thinking,omitempty"` // of generate
	Logprobs  []chatLogprob  `json:"logprobs,omitempty"`
	Done      bool           `json:"done"`
	*ollamaEnd
}

// ollamaEnd is what the last line has besides. Durations are in nanoseconds.
type ollamaEnd struct {
	DoneReason         string        `json:"done_reason"`
	TotalDuration      time.Duration `json:"total_duration"`
	LoadDuration       time.Duration `json:"load_duration"`
	PromptEvalCount    int           `json:"prompt_eval_count"`
	PromptEvalDuration time.Duration `json:"prompt_eval_duration"`
	EvalCount          int           `json:"eval_count"`
	EvalDuration       time.Duration `json:"eval_duration"`
}

// ollamaAnswer makes the lines of one answer.
type ollamaAnswer struct {
	model string // as the client wrote it
	chat  bool
	open  []ollamaCall // calls whose arguments are still coming
}

// newLine returns a line with text. Reasoning is apart from it.
func (a *ollamaAnswer) newLine(text, reasoning string) *ollamaReply {
	l := &ollamaReply{Model: a.model, CreatedAt: time.Now().UTC()}
	if a.chat {
		l.Message = &ollamaMessage{Role: "assistant", Content: text, Thinking: reasoning}
		return l
	}
	l.Response, l.Thinking = &text, reasoning
	return l
}

// line returns the line of a token; nil where it shows nothing yet.
func (a *ollamaAnswer) line(t *client.Token) *ollamaReply {
	ended := a.take(t.Calls)
	if t.Text == "" && t.Reasoning == "" && len(ended) == 0 && t.Logprob == nil {
		return nil
	}
	l := a.newLine(t.Text, t.Reasoning)
	if l.Message != nil {
		l.Message.ToolCalls = ended
	}
	if t.Logprob != nil {
		l.Logprobs = []chatLogprob{logprobOf(t)}
	}
	return l
}

// take collects pieces of calls. It returns the calls that are whole: those before a newer one.
func (a *ollamaAnswer) take(pieces []client.CallPiece) (whole []ollamaCall) {
	for _, p := range pieces {
		last := len(a.open) - 1
		if last < 0 || a.open[last].Function.Index != p.Index {
			whole = append(whole, a.rest()...)
			c := ollamaCall{ID: p.ID}
			c.Function.Index, c.Function.Name = p.Index, p.Name
			a.open, last = append(a.open, c), 0
		}
		a.open[last].Function.Arguments = append(a.open[last].Function.Arguments, p.Arguments...)
	}
	return whole
}

// rest returns the calls that have come in full. A call that the answer's end has cut is left out: its
// arguments are no object.
func (a *ollamaAnswer) rest() (whole []ollamaCall) {
	for _, c := range a.open {
		if len(c.Function.Arguments) == 0 {
			c.Function.Arguments = json.RawMessage("{}")
		}
		if json.Valid(c.Function.Arguments) {
			whole = append(whole, c)
		}
	}
	a.open = nil
	return whole
}

// lastLine returns the last line. Ollama says stop also after calls of tools.
func (a *ollamaAnswer) lastLine(done *client.Done) *ollamaReply {
	l := a.newLine("", "")
	if l.Message != nil {
		l.Message.ToolCalls = a.rest()
	}
	reason := done.FinishReason
	if reason != "length" {
		reason = "stop"
	}
	t := done.Timing
	l.Done, l.ollamaEnd = true, &ollamaEnd{
		DoneReason:      reason,
		TotalDuration:   milliseconds(t.TotalMS),
		LoadDuration:    milliseconds(t.QueueMS), // a generator's model is loaded: the wait is for a place
		PromptEvalCount: done.Usage.PromptTokens, PromptEvalDuration: milliseconds(t.PrefillMS),
		EvalCount: done.Usage.CompletionTokens, EvalDuration: milliseconds(max(t.TotalMS-t.TTFTMS, 0)),
	}
	return l
}

// loaded answers a request without a prompt, with which Ollama's clients ask for a model to be loaded.
func (a *ollamaAnswer) loaded() *ollamaReply {
	l := a.newLine("", "")
	l.Done, l.ollamaEnd = true, &ollamaEnd{DoneReason: "load"}
	return l
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// ollamaStream sends the lines of an answer as they come.
type ollamaStream struct {
	ollamaAnswer
	*stream
}

func (o *ollamaStream) token(_ int, t *client.Token) error {
	if l := o.line(t); l != nil {
		return o.send(l)
	}
	return nil
}

func (o *ollamaStream) done(_ int, d *client.Done) error { return o.send(o.lastLine(d)) }

// ollamaWhole joins the lines of an answer that is not streamed.
type ollamaWhole struct {
	ollamaAnswer
	ollamaReply
	text, reasoning strings.Builder
	calls           []ollamaCall
	logprobs        []chatLogprob
}

func (o *ollamaWhole) token(_ int, t *client.Token) error {
	o.text.WriteString(t.Text)
	o.reasoning.WriteString(t.Reasoning)
	if l := o.line(t); l != nil {
		o.logprobs = append(o.logprobs, l.Logprobs...)
		if l.Message != nil {
			o.calls = append(o.calls, l.Message.ToolCalls...)
		}
	}
	return nil
}

func (o *ollamaWhole) done(_ int, d *client.Done) error {
	o.ollamaReply = *o.lastLine(d)
	return nil
}

// finish makes the last line the whole answer.
func (o *ollamaWhole) finish() {
	text := o.text.String()
	o.Logprobs = o.logprobs
	if o.Message == nil {
		o.Response, o.Thinking = &text, o.reasoning.String()
		return
	}
	o.Message.Content, o.Message.Thinking = text, o.reasoning.String()
	o.Message.ToolCalls = append(o.calls, o.Message.ToolCalls...)
}
