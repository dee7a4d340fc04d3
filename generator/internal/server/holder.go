package server

import (
	"slices"

	"reel/protocol"
)

// holder gives a completion's tokens their text and holds those back whose text
// is undecided: the first bytes of a character, or what may become a stop
// string. PROTOCOL.md, "Text and tokens", has the rules.
type holder struct {
	decoder Decoder
	stops   stopFilter
	emit    func(*protocol.Token) // takes each token in order; it keeps nothing of it

	total int // bytes of text so far
	queue []heldToken
}

// heldToken waits until need bytes of the completion's text are decided.
type heldToken struct {
	protocol.Token
	start int // of its text in the completion's
	need  int
}

// push adds the next token, whose Text is set here. stopped means that a stop
// string is complete: all is emitted, cut before it, and nothing may follow.
func (h *holder) push(t *protocol.Token) (stopped bool) {
	t.Text = h.decoder.Push(t.Token)
	start := h.total
	decided, stopped := h.extend(t.Text)
	need := h.total
	if h.decoder.Held() > 0 {
		need++ // the character to come, at least its first byte
	}
	if len(h.queue) == 0 && need <= decided && !stopped {
		h.emit(t)
		return false
	}
	h.queue = append(h.queue, heldToken{keep(t), start, need})
	if stopped {
		h.cut(decided)
	} else {
		h.release(decided)
	}
	return stopped
}

// flush ends the text: all is decided and emitted. stopped is as in push.
func (h *holder) flush() (stopped bool) {
	rest := h.decoder.Flush()
	decided, stopped := h.extend(rest)
	if len(h.queue) > 0 {
		h.queue[len(h.queue)-1].Text += rest
	}
	if !stopped {
		decided = h.total
	}
	h.cut(decided)
	return stopped
}

// extend adds text and returns how many bytes of the completion are decided.
func (h *holder) extend(text string) (decided int, stopped bool) {
	tail, stopped := h.stops.push(text)
	h.total += len(text)
	return h.total - tail, stopped
}

// release emits the tokens that have what they need.
func (h *holder) release(decided int) {
	n := 0
	for n < len(h.queue) && h.queue[n].need <= decided {
		h.emit(&h.queue[n].Token)
		n++
	}
	h.queue = slices.Delete(h.queue, 0, n)
}

// cut emits every token, without the text from end on.
func (h *holder) cut(end int) {
	for i := range h.queue {
		t := &h.queue[i]
		if over := t.start + len(t.Text) - end; over > 0 {
			t.Text = t.Text[:max(0, len(t.Text)-over)]
		}
		h.emit(&t.Token)
	}
	h.queue = nil
}

// keep copies what t points to, since the sender uses it again.
func keep(t *protocol.Token) protocol.Token {
	kept := *t
	kept.Top = slices.Clone(t.Top)
	if t.Logprob != nil {
		logprob := *t.Logprob
		kept.Logprob = &logprob
	}
	return kept
}
