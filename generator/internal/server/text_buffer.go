package server

import (
	"slices"

	"reel.internal/reel/protocol"
)

// textBuffer adds the text to a completion's tokens. It holds back tokens until their
// text is decided: bytes of an incomplete character and bytes that may become a stop
// string are undecided. PROTOCOL.md, "Text and tokens", has the rules.
type textBuffer struct {
	decoder Decoder
	stops   stopFilter
	read    *reading              // divides the text; nil: all of it is a completion's text
	emit    func(*protocol.Token) // is called for each token in order; must not keep the pointer

	total int // bytes of text so far
	held  []heldToken
}

// heldToken waits until the first need bytes of the completion's text are decided.
type heldToken struct {
	protocol.Token
	start int // offset of the token's text in the completion's text
	need  int
}

// push sets the next token's Text and adds it. It returns stopped if a stop string is
// complete: then every token is emitted, the text cut before the stop string, and no
// call may follow.
func (b *textBuffer) push(t *protocol.Token) (stopped bool) {
	marker := b.read.marker(t.Token)
	if marker == "" {
		t.Text = b.decoder.Push(t.Token)
	} else {
		t.Text = b.decoder.Flush()
	}
	start := b.total
	decided, stopped := b.extend(t.Text, marker)
	need := b.total
	if b.decoder.Held() > 0 {
		need++ // the incomplete character, at least its first byte
	}
	if len(b.held) == 0 && need <= decided && !stopped {
		b.send(t, start)
		return false
	}
	b.held = append(b.held, heldToken{clone(t), start, need})
	if stopped {
		b.emitCut(decided)
	} else {
		b.emitDecided(decided)
	}
	return stopped
}

// flush ends the text and emits every held token. It returns stopped as push does.
func (b *textBuffer) flush() (stopped bool) {
	rest := b.decoder.Flush()
	decided, stopped := b.extend(rest, "")
	if len(b.held) > 0 {
		b.held[len(b.held)-1].Text += rest
	}
	if !stopped {
		b.read.push(b.stops.open)
		b.read.end()
		decided = b.total
	}
	b.emitCut(decided)
	return stopped
}

// extend adds text, and a marker after it. It returns the number of decided bytes of the completion.
func (b *textBuffer) extend(text, marker string) (decided int, stopped bool) {
	open := b.stops.open
	tail, stopped := b.stops.push(text)
	b.total += len(text)
	if b.read == nil {
		return b.total - tail, stopped
	}
	if open != "" {
		text = open + text
	}
	b.read.push(text[:len(text)-tail])
	if marker != "" && !stopped {
		b.read.push(b.stops.open) // no stop string goes on beyond a control token
		b.stops.open = ""
		b.read.Mark(marker)
	}
	if stopped = stopped || b.read.Ended(); stopped {
		b.read.end()
	}
	return b.read.Decided(), stopped
}

// send emits a token with the part that the text from an offset on has in the completion.
func (b *textBuffer) send(t *protocol.Token, start int) {
	if b.read != nil {
		b.read.divide(t, start)
	}
	b.emit(t)
}

// emitDecided emits the held tokens that need at most decided bytes.
func (b *textBuffer) emitDecided(decided int) {
	n := 0
	for n < len(b.held) && b.held[n].need <= decided {
		b.send(&b.held[n].Token, b.held[n].start)
		n++
	}
	b.held = slices.Delete(b.held, 0, n)
}

// emitCut emits every held token, without text at or after offset end.
func (b *textBuffer) emitCut(end int) {
	for i := range b.held {
		t := &b.held[i]
		if over := t.start + len(t.Text) - end; over > 0 {
			t.Text = t.Text[:max(0, len(t.Text)-over)]
		}
		b.send(&t.Token, t.start)
	}
	b.held = nil
}

// clone copies t and the values that it points to; the caller reuses them.
func clone(t *protocol.Token) protocol.Token {
	c := *t
	c.Top = slices.Clone(t.Top)
	if t.Logprob != nil {
		logprob := *t.Logprob
		c.Logprob = &logprob
	}
	return c
}
