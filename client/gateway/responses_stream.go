package gateway

import (
	"encoding/json"

	"reel.internal/reel/client"
)

// responseEvent is an event of a streamed response. Each type has some of the fields, and the number of the event.
type responseEvent struct {
	Type         string           `json:"type"`
	Sequence     int              `json:"sequence_number"`
	Response     *response        `json:"response,omitempty"`
	OutputIndex  *int             `json:"output_index,omitempty"`
	Item         *responseItem    `json:"item,omitempty"`
	ItemID       string           `json:"item_id,omitempty"`
	ContentIndex *int             `json:"content_index,omitempty"`
	Part         *responseContent `json:"part,omitempty"`
	Delta        *string          `json:"delta,omitempty"`
	Text         *string          `json:"text,omitempty"`
	Name         string           `json:"name,omitempty"`
	Arguments    *string          `json:"arguments,omitempty"`
	Logprobs     []chatLogprob    `json:"logprobs,omitzero"`
}

// event names e for its line before the data.
func (e *responseEvent) event() string { return e.Type }

// responseErrorEvent is the last event of a stream that fails. OpenAI documents the fields beside error, and sends
// error: by it its clients know that the stream has failed.
type responseErrorEvent struct {
	Type     string          `json:"type"`
	Sequence int             `json:"sequence_number"`
	Code     string          `json:"code"`
	Message  string          `json:"message"`
	Param    *string         `json:"param"`
	Error    json.RawMessage `json:"error"`
}

func (e *responseErrorEvent) event() string { return e.Type }

// responsesStream sends a response in events.
type responsesStream struct {
	responsesAnswer
	*stream
	begun    bool  // the first events have been made
	sequence int   // number of the next event
	events   []any // that are not sent yet
}

func newResponsesStream(a responsesAnswer) *responsesStream {
	s := &responsesStream{responsesAnswer: a}
	s.to = s
	return s
}

// open gives the events their stream.
func (s *responsesStream) open(to *stream) {
	s.stream = to
	to.failure = s.failure
}

// emit adds an event.
func (s *responsesStream) emit(e responseEvent) {
	e.Sequence = s.sequence
	s.sequence++
	s.events = append(s.events, &e)
}

// snapshot adds an event with the response as it is now.
func (s *responsesStream) snapshot(kind string) {
	now := s.response
	s.emit(responseEvent{Type: kind, Response: &now})
}

// start adds the first events.
func (s *responsesStream) start() {
	if !s.begun {
		s.begun = true
		s.snapshot("response.created")
		s.snapshot("response.in_progress")
	}
}

// flush sends the events.
func (s *responsesStream) flush() error {
	if len(s.events) == 0 {
		return nil
	}
	defer func() { s.events = s.events[:0] }()
	return s.send(s.events...)
}

// token sends what a token adds. A token without text adds nothing, but shows that the response has begun.
func (s *responsesStream) token(choice int, t *client.Token) error {
	s.start()
	if err := s.responsesAnswer.token(choice, t); err != nil {
		return err
	}
	return s.flush()
}

// done sends the last events.
func (s *responsesStream) done(choice int, d *client.Done) error {
	s.start()
	if err := s.responsesAnswer.done(choice, d); err != nil {
		return err
	}
	s.finish()
	s.snapshot("response." + s.Status)
	return s.flush()
}

// last sends nothing: a response says itself that it has ended.
func (s *responsesStream) last() error { return nil }

// failure returns the events of a response that has failed.
func (s *responsesStream) failure(e *apiError) []any {
	s.start()
	s.Status, s.Error = failed, &responseError{e.code, e.message}
	s.snapshot("response.failed")
	form := e.openAI().Error
	text, _ := json.Marshal(form) // texts alone
	return append(s.events, &responseErrorEvent{"error", s.sequence, e.code, e.message, form.Param, text})
}

// began adds the events with which an item begins.
func (s *responsesStream) began(p *part) {
	item := s.empty(p, inProgress)
	s.emit(responseEvent{Type: "response.output_item.added", OutputIndex: &p.index, Item: &item})
	if p.kind != callPart {
		content := p.content("")
		s.emit(s.about(p, responseEvent{Type: "response.content_part.added", Part: &content}))
	}
}

// about returns an event of a part.
func (s *responsesStream) about(p *part, e responseEvent) responseEvent {
	e.ItemID, e.OutputIndex = s.id(p), &p.index
	if p.kind != callPart {
		e.ContentIndex = new(0)
	}
	return e
}

// eventKinds are the types of the events of a part's text, by its kind, without .delta and .done.
var eventKinds = [...]string{reasoningPart: "response.reasoning_text", textPart: "response.output_text",
	callPart: "response.function_call_arguments"}

// grew adds the event with more of an item's text.
func (s *responsesStream) grew(p *part, text string, logprobs []chatLogprob) {
	e := responseEvent{Type: eventKinds[p.kind] + ".delta", Delta: &text}
	if p.kind == textPart {
		e.Logprobs = append([]chatLogprob{}, logprobs...)
	}
	s.emit(s.about(p, e))
}

// ended adds the events with the whole of an item. The last item of an answer that was cut is incomplete.
func (s *responsesStream) ended(p *part) {
	text := p.text.String()
	e := responseEvent{Type: eventKinds[p.kind] + ".done"}
	switch p.kind {
	case callPart:
		e.Name, e.Arguments = p.name, &text
	case textPart:
		e.Logprobs = append([]chatLogprob{}, p.logprobs...)
		fallthrough
	default:
		e.Text = &text
	}
	s.emit(s.about(p, e))
	status := completed
	if s.Status == incomplete {
		status = incomplete
	}
	item := s.item(p, status)
	if p.kind != callPart {
		s.emit(s.about(p, responseEvent{Type: "response.content_part.done", Part: &item.Content[0]}))
	}
	s.emit(responseEvent{Type: "response.output_item.done", OutputIndex: &p.index, Item: &item})
}
