package server

import (
	"slices"

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
	user  uint32

	// Of a conversation: its template's input, and the text that the client got.
	messages  []protocol.Message
	variables protocol.Variables
	text      []byte

	tokens []int32 // of another request: prompt and answer

	// Guarded by the rereader's mu.
	held      int  // bytes that are counted
	forgotten bool // its user has dropped its cached pages since it ended
}

// newAnswer returns an empty answer to collect; nil if it will not be reread. Most answers fit its
// memory, so that the engine's thread, which may write tokens itself, seldom allocates.
func newAnswer(model *Model, m *protocol.Generate, user uint32, p protocol.Params, prompt []int32) *answer {
	room := min(p.MaxTokens, 1024)
	switch {
	case p.Cache != protocol.CacheOn:
	case m.Messages != nil && (model.Reread == RereadChat || model.Reread == RereadAll):
		return &answer{model: model, user: user, messages: m.Messages, variables: m.Template,
			text: make([]byte, 0, 4*room)}
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
	if a.messages != nil {
		a.text = append(a.text, t.Text...)
	} else {
		a.tokens = append(a.tokens, t.Token)
	}
}

// messageBytes is the memory of a message without its texts, or some more.
const messageBytes = 64

// bytes returns the memory that the answer holds, or some more.
func (a *answer) bytes() int {
	n := len(a.text) + 4*len(a.tokens)
	for _, m := range a.messages {
		n += messageBytes + len(m.Role) + len(m.Content)
	}
	if len(a.variables) > 0 {
		n += 2 * protocol.MaxVariableBytes // decoded
	}
	return n
}

// nextWords are two next messages of a user that have no beginning in common. Up to the point
// where their prompts differ, every next turn has the same tokens: templates may drop, strip or
// move parts of the history, and a tokenizer may join its end with the next words.
var nextWords = [2]string{"a", "Zq9"}

// next returns the tokens with which the next prompt begins; none if that is unknown. It takes
// permits of the template and of the tokenizer only when nobody else wants them.
func (s *Server) next(a *answer) []int32 {
	if a.messages == nil {
		return a.tokens
	}
	var prompts [2][]int32
	for i, words := range nextWords {
		turn := append(slices.Clip(a.messages), protocol.Message{Role: "assistant", Content: string(a.text)},
			protocol.Message{Role: "user", Content: words})
		if !s.awaitIdle() {
			return nil
		}
		s.renders.acquireSpare()
		text, err := a.model.Chat.Render(turn, a.variables, a.model.Limits.PromptBytes)
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
