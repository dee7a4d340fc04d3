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
	// Next asks for the mask of the next token, after some tokens were drawn; none were before the first. With the mask
	// may come at most so many drafts. done is called once, on any goroutine or within Next, unless Close came first.
	// drawn may change after the call; words and drafts of the mask stay unchanged until the next call.
	Next(drawn []int32, drafts int, done func(Mask))
	// Close frees what the format holds. The engine calls it once, when the request has ended.
	Close()
}

// Mask says which tokens may be drawn next.
type Mask struct {
	// Words has a bit for each token: token i is bit i%32 of word i/32, and 1 if it may be drawn. End-of-sequence
	// tokens are among them where the text may end. With Drafts, a mask for the token after each of them follows.
	Words []uint32
	// Drafts are tokens with which the text is likely to go on. They change no token that is drawn.
	Drafts []int32
	Ended  bool  // the text is complete and nothing may follow: the request ends with "stop", and Words is nil
	Err    error // the format failed: the request ends with this error
}

// masking is the state of a request with a format. The mask of each token is made after the token before it was read,
// while the steps of other requests run; a request has one step in flight at most. After the last token a mask is asked
// for too: it says whether the text is complete.
//
// Where a format knows how the text goes on, as in the names of a schema's properties, a step checks several tokens:
// the format guesses them, and makes a mask for the row of each. They are sampled like those of any verify step, each
// within the mask that it has alone, so they are the same.
type masking struct {
	words []uint32    // of the next token and those after drafts; nil while they are not there
	asked time.Time   // when they were asked for; zero if they were not
	late  *time.Timer // sends maskLate; nil before the first mask was asked for
}

// askMask asks for the mask of s's next token, if s has a format. drawn are tokens that s is about to get.
func (e *Engine) askMask(s *sequence, drawn []int32) {
	if s.request.Format == nil {
		return
	}
	m, handle, index, round := &s.masking, s.handle, s.tokens+len(drawn), uint64(0)
	most := 0 // drafts; the prompt's step has none
	if len(drawn) > 0 {
		round = e.countAsked()
		most = max(0, min(e.opts.mostQueries(), 1+s.request.DraftTokens, s.scheduled.MaxTokens-index)-1)
	}
	if m.asked = time.Now(); m.late == nil {
		m.late = time.AfterFunc(e.maskTime(), func() { e.send(command{kind: maskLate, handle: handle}) })
	} else {
		m.late.Reset(e.maskTime())
	}
	s.request.Format.Next(drawn, most, func(mask Mask) {
		e.sendMask(round, command{kind: maskMade, handle: handle, index: index, mask: mask})
	})
}

// askAfter asks for the mask after a step's results of q, which are the records from first to last; e.result has the
// first. It does so before they are handed out, so that the mask is made while sinks work. No mask follows a token that
// ends the request.
func (e *Engine) askAfter(q *scheduler.Sequence, b *scheduler.Batch, first, last int) error {
	s := q.Owner.(*sequence)
	if s.request.Format == nil {
		return nil
	}
	e.drawn = e.drawn[:0]
	for row := first; row <= last; row++ {
		if row > first {
			if err := e.readRecord(q, b, row); err != nil {
				return err
			}
		}
		if isNaN(&e.result) || e.endsWith(s, e.result.Token) {
			return e.readRecord(q, b, first)
		}
		e.drawn = append(e.drawn, e.result.Token)
	}
	e.askMask(s, e.drawn)
	if last == first {
		return nil
	}
	return e.readRecord(q, b, first)
}

// takeMask lets s have its next token, or ends it if its format allows none or it has all that it may have. index is
// the token's.
func (e *Engine) takeMask(s *sequence, index int, mask Mask) {
	if s.masking.asked.IsZero() || index != s.tokens {
		return // a second call of done
	}
	s.masking.asked = time.Time{}
	s.masking.late.Stop()
	vocab := e.model.Config.Vocab
	words := kernels.MaskWords(vocab)
	switch {
	case mask.Ended:
		e.end(s, protocol.FinishStop, nil)
	case s.tokens >= s.scheduled.MaxTokens:
		e.end(s, protocol.FinishLength, nil)
	case mask.Err != nil:
		e.end(s, "", fmt.Errorf("%w: %w", ErrFormat, mask.Err))
	case len(mask.Words) != (1+len(mask.Drafts))*words:
		e.end(s, "", fmt.Errorf("%w: a mask of %d words for %d tokens and %d drafts", ErrFormat, len(mask.Words), vocab,
			len(mask.Drafts)))
	case !e.allowsAny(mask.Words[:words]):
		e.end(s, "", fmt.Errorf("%w: no token may follow token %d", ErrFormat, index))
	default:
		drafts := mask.Drafts[:e.possible(mask)]
		s.masking.words = mask.Words[:(1+len(drafts))*words]
		s.scheduled.Allow(drafts)
	}
}

// possible returns how many of a mask's drafts may stand: the mask before each one allows it, and that after it allows
// a token. In the row of another one something would be drawn that the format refuses.
func (e *Engine) possible(mask Mask) (n int) {
	vocab := e.model.Config.Vocab
	for words := kernels.MaskWords(vocab); n < len(mask.Drafts); n++ {
		before, after, draft := mask.Words[n*words:], mask.Words[(n+1)*words:][:words], mask.Drafts[n]
		if draft < 0 || int(draft) >= vocab || before[draft/32]>>(draft%32)&1 == 0 || !e.allowsAny(after) {
			break
		}
	}
	return n
}

// allowsAny reports whether a mask allows a token that may be drawn. Bits past the vocabulary count for nothing.
func (e *Engine) allowsAny(words []uint32) bool {
	last := len(words) - 1
	for i, w := range words {
		if e.suppressed != nil {
			w &^= e.suppressed[i]
		}
		if i == last {
			w <<= 31 - (e.model.Config.Vocab-1)%32
		}
		if w != 0 {
			return true
		}
	}
	return false
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

// writeMasks writes the masks of a step that is about to be enqueued to their slots, one for each row. No enqueued step
// samples there.
func (e *Engine) writeMasks(masked []*scheduler.Sequence) {
	words := kernels.MaskWords(e.model.Config.Vocab)
	for _, q := range masked {
		m := &q.Owner.(*sequence).masking
		slot, _ := q.Slot()
		copy(e.memory.Masks(slot), m.words[:(1+q.Drafts)*words])
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
