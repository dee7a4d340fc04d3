package server

import (
	"slices"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// RereadMode says after which requests the engine rereads prompt and answer, so that the next
// prompt finds their pages.
type RereadMode string

// The modes, as --reread has them.
const (
	RereadChat RereadMode = "chat" // conversations
	RereadAll  RereadMode = "all"  // these, and prompts
	RereadOff  RereadMode = "off"  // none; the zero value too
)

// answer is a request with its answer, from which the next prompt's beginning follows.
type answer struct {
	model *Model
	user  engine.User

	// Of a conversation: its template's input, and the answer that the client got.
	Conversation
	text      []byte
	reasoning []byte
	calls     []madeCall

	tokens []int32 // of another request: prompt and answer

	// Guarded by the rereader's mu.
	held      int  // bytes that are counted
	forgotten bool // its user has dropped its cached pages since it ended
}

// madeCall is a call of a tool in an answer.
type madeCall struct {
	id, name  string
	arguments []byte
}

// newAnswer returns an empty answer to collect; nil if it will not be reread. Most answers fit its
// memory, so that the engine's thread, which may write tokens itself, seldom allocates.
func newAnswer(model *Model, m *protocol.Generate, user engine.User, p protocol.Params, prompt []int32) *answer {
	room := min(p.MaxTokens, 1024)
	switch {
	case p.Cache != protocol.CacheOn:
	case m.Messages != nil && (model.Reread == RereadChat || model.Reread == RereadAll):
		return &answer{model: model, user: user, text: make([]byte, 0, 4*room),
			Conversation: Conversation{m.Messages, shownTools(m), m.Template}}
	case m.Messages == nil && model.Reread == RereadAll:
		return &answer{model: model, user: user, tokens: append(make([]int32, 0, len(prompt)+room), prompt...)}
	}
	return nil
}

// add adds a token as it was sent.
func (a *answer) add(t *protocol.Token) {
	if a == nil {
		return
	}
	if a.Messages == nil {
		a.tokens = append(a.tokens, t.Token)
		return
	}
	a.text = append(a.text, t.Text...)
	a.reasoning = append(a.reasoning, t.Reasoning...)
	for _, c := range t.Calls {
		if c.ID != "" {
			a.calls = append(a.calls, madeCall{id: c.ID, name: c.Name})
		}
		last := &a.calls[len(a.calls)-1]
		last.arguments = append(last.arguments, c.Arguments...)
	}
}

// messageBytes is the memory of a message or of a call without its texts, or some more.
const messageBytes = 160

// bytes returns the memory that the answer holds, or some more.
func (a *answer) bytes() int {
	n := len(a.text) + len(a.reasoning) + 4*len(a.tokens) + len(a.Tools)
	for _, c := range a.calls {
		n += messageBytes + len(c.id) + len(c.name) + len(c.arguments)
	}
	for _, m := range a.Messages {
		n += messageBytes + len(m.Role) + len(m.Content) + len(m.Reasoning) + len(m.Name) + len(m.ToolCallID)
		for _, c := range m.ToolCalls {
			n += messageBytes + len(c.ID) + len(c.Name) + len(c.Arguments)
		}
	}
	if len(a.Variables) > 0 {
		n += 2 * protocol.MaxVariableBytes // decoded
	}
	return n
}

// message returns the answer as clients send it with the next turn.
func (a *answer) message() protocol.Message {
	m := protocol.Message{Role: "assistant", Content: string(a.text), Reasoning: string(a.reasoning)}
	for _, c := range a.calls {
		m.ToolCalls = append(m.ToolCalls, protocol.ToolCall{ID: c.id, Name: c.name, Arguments: string(c.arguments)})
	}
	return m
}

// reply returns a next message: of a user, or the result of the first call.
func (a *answer) reply(words string) protocol.Message {
	if len(a.calls) == 0 {
		return protocol.Message{Role: "user", Content: words}
	}
	return protocol.Message{Role: "tool", Content: words, ToolCallID: a.calls[0].id}
}

// nextWords are two next messages of a user or a tool that have no beginning in common. Up to the point
// where their prompts differ, every next turn has the same tokens: templates may drop, strip or
// move parts of the history, and a tokenizer may join its end with the next words.
var nextWords = [2]string{"a", "Zq9"}

// next returns the tokens with which the next prompt begins; none if that is unknown. It takes
// permits of the template and of the tokenizer only when nobody else wants them.
func (s *Server) next(a *answer) []int32 {
	if a.Messages == nil {
		return a.tokens
	}
	var prompts [2][]int32
	for i, words := range nextWords {
		turn := a.Conversation
		turn.Messages = append(slices.Clip(a.Messages), a.message(), a.reply(words))
		if !s.awaitIdle() {
			return nil
		}
		s.renders.acquireSpare()
		text, err := a.model.Chat.Render(turn, a.model.Limits.PromptBytes)
		s.renders.release(nobody)
		if err != nil || !s.awaitIdle() {
			return nil
		}
		if prompts[i], err = s.encodeSpare(a.model, text); err != nil {
			return nil
		}
	}
	same := 0
	for same < min(len(prompts[0]), len(prompts[1])) && prompts[0][same] == prompts[1][same] {
		same++
	}
	return prompts[0][:same]
}

// encodeSpare tokenizes a text for nobody who waits.
func (s *Server) encodeSpare(m *Model, text marked.Text) ([]int32, error) {
	permits := s.texts.permits(text.Len())
	permits.acquireSpare()
	defer permits.release(nobody)
	return m.Tokenizer.EncodeMarked(text, false)
}
