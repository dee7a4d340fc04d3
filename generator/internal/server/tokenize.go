package server

import (
	"errors"
	"math"
	"runtime"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// maxTokenizers bounds the large texts that are tokenized at once, on any number of
// processors: tokenizing a text takes up to 30 times its size in memory.
const maxTokenizers = 4

// tokenizers returns the number of large texts that may be tokenized at once, which is
// also the number of small ones. Together they leave a processor to the engine on a
// machine with more than two.
func tokenizers() int { return max(1, min(maxTokenizers, (runtime.GOMAXPROCS(0)-1)/2)) }

// textQueue bounds the processors that tokenizing takes. One text of a user is tokenized
// at a time; the user's other texts wait in order of arrival. Large and small texts of
// all users have separate permits, so that a small text never waits for another user's
// large one. Waiting blocks the connection's reader, and so the messages behind the text.
type textQueue struct {
	users        *fairSemaphore
	small, large *fairSemaphore
	largeText    int // bytes; a longer text is large
}

func newTextQueue(b bounds) textQueue {
	return textQueue{
		users: newFairSemaphore(math.MaxInt, b.userTexts),
		small: newFairSemaphore(b.smallTexts, b.userTexts),
		large: newFairSemaphore(b.largeTexts, b.userTexts),

		largeText: b.largeText,
	}
}

// permits returns the semaphore for a text of n bytes.
func (q *textQueue) permits(n int) *fairSemaphore {
	if n > q.largeText {
		return q.large
	}
	return q.small
}

// encode tokenizes a user's text for a model, as [Tokenizer] does. It waits for the text's
// permits first.
func (s *Server) encode(m *Model, text marked.Text, postProcessor bool, user engine.User) ([]int32, *protocol.Error) {
	permits := s.texts.permits(text.Len())
	s.texts.users.acquire(user)
	permits.acquire(user)
	tokens, err := m.Tokenizer.EncodeMarked(text, postProcessor)
	permits.release(user)
	s.texts.users.release(user)
	var told *protocol.Error
	if errors.As(err, &told) {
		return nil, told
	}
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "check the text's encoding",
			"the text cannot be tokenized: %v", err)
	}
	return tokens, nil
}

// markedPrompt returns the text of a prompt. Only special: false makes it data.
func markedPrompt(text string, special *bool) marked.Text {
	if special != nil && !*special {
		return marked.Data(text)
	}
	return marked.Trusted(text)
}

// tokenize answers a Tokenize message; the decoder has checked the text's length. A
// draining generator still answers.
func (c *conn) tokenize(m *protocol.Tokenize) *protocol.Error {
	tokens, e := c.server.encode(c.model, markedPrompt(m.Text, m.Special), true, engine.User{UID: c.peer.uid})
	if e != nil {
		return e
	}
	if len(tokens) > protocol.MaxElements {
		return protocol.Errorf(protocol.CodePromptTooLong, "tokenize it in parts",
			"the text has %d tokens: a list may have %d", len(tokens), protocol.MaxElements)
	}
	c.send(&protocol.Tokens{Tokens: tokens})
	return nil
}
