package engine

import (
	"errors"
	"fmt"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels"
	"reel.internal/reel/protocol"
)

// ErrFormat is wrapped by the Finish.Err of a request whose format failed.
var ErrFormat = errors.New("engine: the request's format failed")

// maskTime bounds how long a format may take to make a mask. Formats have shorter bounds of their own.
const maskTime = 10 * time.Second

// Format constrains what one request may draw. The engine's thread calls its methods, which must not block.
type Format interface {
	// Next asks for the mask of the next token, after token was drawn; token is -1 before the first. done is called
	// once, on any goroutine or within Next, unless Close came first. The mask's words stay unchanged until the next
	// call of Next.
	Next(token int32, done func(Mask))
	// Close frees what the format holds. The engine calls it once, when the request has ended.
	Close()
}

// Mask says which tokens may be drawn next.
type Mask struct {
	// Words has a bit for each token: token i is bit i%32 of word i/32, and 1 if it may be drawn. End-of-sequence
	// tokens are among them where the text may end.
	Words []uint32
	Ended bool  // the text is complete and nothing may follow: the request ends with "stop", and Words is nil
	Err   error // the format failed: the request ends with this error
}

// masking is the state of a request with a format. The mask of each token is made after the token before it was read,
// while the steps of other requests run; a request has one step in flight at most. After the last token a mask is asked
// for too: it says whether the text is complete.
type masking struct {
	words []uint32    // of the next token; nil while they are not there
	asked time.Time   // when they were asked for; zero if they were not
	late  *time.Timer // sends maskLate; nil before the first mask was asked for
}

// askMask asks for the mask of s's next token, if s has a format. token was drawn last.
func (e *Engine) askMask(s *sequence, token int32) {
	if s.request.Format == nil {
		return
	}
	m, handle, index, round := &s.masking, s.handle, s.tokens, uint64(0)
	if token >= 0 {
		round = e.countAsked()
	}
	if m.asked = time.Now(); m.late == nil {
		m.late = time.AfterFunc(e.maskTime(), func() { e.send(command{kind: maskLate, handle: handle}) })
	} else {
		m.late.Reset(e.maskTime())
	}
	s.request.Format.Next(token, func(mask Mask) {
		e.sendMask(round, command{kind: maskMade, handle: handle, index: index, mask: mask})
	})
}

// takeMask lets s have its next token, or ends it if its format allows none or it has all that it may have. index is
// the token's.
func (e *Engine) takeMask(s *sequence, index int, mask Mask) {
	if s.masking.asked.IsZero() || index != s.tokens {
		return // a second call of done
	}
	s.masking.asked = time.Time{}
	s.masking.late.Stop()
	switch vocab := e.model.Config.Vocab; {
	case mask.Ended:
		e.end(s, protocol.FinishStop, nil)
	case s.tokens >= s.scheduled.MaxTokens:
		e.end(s, protocol.FinishLength, nil)
	case mask.Err != nil:
		e.end(s, "", fmt.Errorf("%w: %w", ErrFormat, mask.Err))
	case len(mask.Words) != kernels.MaskWords(vocab):
		e.end(s, "", fmt.Errorf("%w: a mask of %d words for %d tokens", ErrFormat, len(mask.Words), vocab))
	case !allowsAny(mask.Words, vocab):
		e.end(s, "", fmt.Errorf("%w: no token may follow token %d", ErrFormat, index))
	default:
		s.masking.words = mask.Words
		s.scheduled.Allow()
	}
}

// allowsAny reports whether a mask allows one of vocab tokens. Bits past them count for nothing.
func allowsAny(words []uint32, vocab int) bool {
	last := len(words) - 1
	for _, w := range words[:last] {
		if w != 0 {
			return true
		}
	}
	return words[last]<<(31-(vocab-1)%32) != 0
}

// endLate ends s if its mask was asked for too long ago. The timer that calls it may have fired for an earlier mask.
func (e *Engine) endLate(s *sequence) {
	if m := &s.masking; !m.asked.IsZero() && time.Since(m.asked) >= e.maskTime() {
		e.takeMask(s, s.tokens, Mask{Err: fmt.Errorf("no mask after %v", e.maskTime())})
	}
}

func (e *Engine) maskTime() time.Duration {
	if e.opts.maskTime > 0 {
		return e.opts.maskTime
	}
	return maskTime
}

// writeMasks writes the masks of a step that is about to be enqueued to their slots. No enqueued step samples there.
func (e *Engine) writeMasks(masked []*scheduler.Sequence) {
	for _, q := range masked {
		m := &q.Owner.(*sequence).masking
		slot, _ := q.Slot()
		copy(e.memory.Masks(slot), m.words)
		m.words = nil
	}
}

// closeFormat closes the format of a request that has ended.
func (s *sequence) closeFormat() {
	if s.request.Format == nil {
		return
	}
	if s.masking.late != nil {
		s.masking.late.Stop()
	}
	s.request.Format.Close()
}
