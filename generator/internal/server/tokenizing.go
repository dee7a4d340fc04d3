package server

import (
	"math"
	"runtime"

	"reel/protocol"
)

// maxTokenizers bounds the large texts that are tokenized at once, however many
// processors there are: each may take 30 times its size in memory.
const maxTokenizers = 4

// tokenizers returns how many large texts may be tokenized at once, and how many small
// ones. Together they leave a processor to the engine where there are more than two.
func tokenizers() int { return max(1, min(maxTokenizers, (runtime.GOMAXPROCS(0)-1)/2)) }

// textQueue bounds the processors that tokenizing takes. One text of a user is
// tokenized at a time, whatever its size; the user's others wait in the order in which
// they came. Over all users large texts share some places, and small ones others, so
// that a small text never waits for a large one of another user. Waiting blocks the
// connection's reader, and with it the messages behind the text.
type textQueue struct {
	users        *fairSemaphore
	small, large *fairSemaphore
	largeText    int // bytes; a text of more is large
}

func newTextQueue(b bounds) textQueue {
	return textQueue{
		users: newFairSemaphore(math.MaxInt, b.userTexts),
		small: newFairSemaphore(b.smallTexts, b.userTexts),
		large: newFairSemaphore(b.tokenizers, b.userTexts),

		largeText: b.largeText,
	}
}

// places returns the semaphore for a text of so many bytes.
func (q *textQueue) places(bytes int) *fairSemaphore {
	if bytes > q.largeText {
		return q.large
	}
	return q.small
}

// encode tokenizes text for a user, by Encode or EncodeRendered, when it is its turn.
func (s *Server) encode(text string, user uint32, by func(string) ([]int32, error)) ([]int32, *protocol.Error) {
	places := s.texts.places(len(text))
	s.texts.users.acquire(user)
	places.acquire(user)
	tokens, err := by(text)
	places.release(user)
	s.texts.users.release(user)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "check the text's encoding",
			"the text cannot be tokenized: %v", err)
	}
	return tokens, nil
}
