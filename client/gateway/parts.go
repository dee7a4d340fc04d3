package gateway

import (
	"strings"

	"reel.internal/reel/client"
)

// partKind says what a part of an answer is.
type partKind int

const (
	reasoningPart partKind = iota
	textPart
	callPart
)

// part is a piece of an answer of one kind: an item of /v1/responses, or a block of /v1/messages.
type part struct {
	kind     partKind
	index    int    // in the answer
	call     int    // of a call: the protocol's index
	id, name string // of a call
	text     strings.Builder
	logprobs []chatLogprob // of its tokens, where they are wanted
}

// partWriter is told of an answer's parts as they come. Its methods are called one at a time.
type partWriter interface {
	began(p *part)
	// grew says that p has more text, whose tokens have logprobs where they are wanted.
	grew(p *part, text string, logprobs []chatLogprob)
	ended(p *part)
}

// parts divides an answer with one choice into parts, in the order in which they come.
type parts struct {
	to   partWriter // nil: nobody is told
	keep bool       // the parts' texts are wanted at the end

	list      []*part
	open      bool          // the last part may go on
	calls     int           // that have begun
	waiting   []chatLogprob // of tokens whose text comes with a later one
	reasoning int           // tokens that carry reasoning
}

// take takes a token.
func (l *parts) take(t *client.Token) error {
	if t.Logprob != nil && t.Reasoning == "" && t.Calls == nil {
		l.waiting = append(l.waiting, logprobOf(t))
	}
	if t.Reasoning != "" {
		l.reasoning++
		l.add(l.part(reasoningPart), t.Reasoning)
	}
	// Text is behind the end of a call's arguments, and before the beginning of another call.
	pieces, goes := t.Calls, l.current()
	if len(pieces) > 0 && goes != nil && goes.kind == callPart && goes.call == pieces[0].Index {
		l.add(goes, pieces[0].Arguments)
		pieces = pieces[1:]
	}
	if t.Text != "" {
		l.add(l.part(textPart), t.Text)
	}
	for _, piece := range pieces {
		p, err := l.called(piece)
		if err != nil {
			return err
		}
		l.add(p, piece.Arguments)
	}
	return nil
}

// current returns the part that may go on, or nil.
func (l *parts) current() *part {
	if !l.open {
		return nil
	}
	return l.list[len(l.list)-1]
}

// part returns the last part if that is of a kind, else a new one.
func (l *parts) part(kind partKind) *part {
	if p := l.current(); p != nil && p.kind == kind {
		return p
	}
	return l.begin(&part{kind: kind})
}

// called returns the part of a piece of a call.
func (l *parts) called(piece client.CallPiece) (*part, error) {
	if p := l.current(); p != nil && p.kind == callPart && p.call == piece.Index {
		return p, nil
	}
	if piece.Index != l.calls {
		return nil, errCallOrder
	}
	l.calls++
	return l.begin(&part{kind: callPart, call: piece.Index, id: piece.ID, name: piece.Name}), nil
}

// begin ends the last part and begins p.
func (l *parts) begin(p *part) *part {
	l.close()
	p.index = len(l.list)
	l.list, l.open = append(l.list, p), true
	if l.to != nil {
		l.to.began(p)
	}
	return p
}

// add adds text to a part.
func (l *parts) add(p *part, text string) {
	if l.keep {
		p.text.WriteString(text)
	}
	fresh := l.attach(p)
	if l.to != nil && (text != "" || fresh != nil) {
		l.to.grew(p, text, fresh)
	}
}

// attach gives a part of text the log-probabilities that wait for one.
func (l *parts) attach(p *part) (fresh []chatLogprob) {
	if p.kind == textPart {
		fresh, l.waiting = l.waiting, nil
		p.logprobs = append(p.logprobs, fresh...)
	}
	return fresh
}

// close ends the last part. The end of an answer is a token without text.
func (l *parts) close() {
	p := l.current()
	if p == nil {
		return
	}
	if fresh := l.attach(p); l.to != nil {
		if fresh != nil {
			l.to.grew(p, "", fresh)
		}
		l.to.ended(p)
	}
	l.open = false
}
