package calls

import (
	"bytes"
	"slices"
)

// Markers of the family Gemma. A call is <|tool_call>call:NAME{key:value,…}<tool_call|>. Values are texts between two
// quoteMarks, numbers, true, false, null, lists and objects. A model stops with resultBegin after its calls.
const (
	pairsBegin  = "<|tool_call>"
	pairsEnd    = "<tool_call|>"
	quoteMark   = `<|"|>`
	resultBegin = "<|tool_response>"
	callWord    = "call:"
)

// pairs follows such a call. Its arguments become JSON as they come. Keys are bare, or texts like values; a text may
// also be a JSON string, since a call that is required has its arguments as JSON.
type pairs struct {
	phase   pairPhase
	inside  []byte // '{' or '[' of each object and list that is open
	further bool   // the innermost of them has a member
	key     string // of the last pair
	from    int    // offset of a bare key or value, or of a key in quotes
	text    []byte // its bytes, with what may be a marker after it
	open    bool   // a bare value is so long that it is a string
	escaped bool   // after a backslash in a JSON string
}

type pairPhase int

const (
	beforeCallWord pairPhase = iota // "call:"
	inPairName                      // the tool's name, up to the arguments
	beforePair                      // a key, or the object's end
	inBareKey                       // a key's colon
	inQuotedKey                     // its quoteMark
	inJSONKey                       // its quotation mark
	afterPairKey                    // the colon
	beforeItem                      // a value, or the list's end
	inBareItem                      // what ends it
	inQuotedItem                    // its quoteMark
	inJSONItem                      // its quotation mark
	afterItem                       // a comma, or the end of the object or list
)

// begun reports whether the arguments have begun, so that the call is one.
func (p *pairs) begun() bool { return len(p.inside) > 0 }

// inObject reports whether the innermost open value is an object.
func (p *pairs) inObject() bool { return p.inside[len(p.inside)-1] == '{' }

// inArguments reports whether the reader is in arguments that become JSON as they come.
func (r *Reader) inArguments() bool {
	return r.state == inElements && r.elements.begun || r.state == inPairs && r.pairs.begun()
}

// beginPairs begins such a call.
func (r *Reader) beginPairs() {
	r.begin(inPairs)
	r.name, r.pairs = r.name[:0], pairs{inside: r.pairs.inside[:0], text: r.pairs.text[:0]}
}

// pairByte takes a byte of such a call.
func (r *Reader) pairByte(c byte) {
	p := &r.pairs
	if p.begun() {
		r.argumentByte(c)
		return
	}
	switch {
	case isSpace(c) && len(r.word) == 0 && len(r.name) == 0:
	case p.phase == beforeCallWord && c == callWord[len(r.word)]:
		if r.word = append(r.word, c); len(r.word) == len(callWord) {
			r.word, p.phase = r.word[:0], inPairName
		}
	case p.phase == inPairName && c == '{' && r.called():
		r.start(r.at)
		r.openPairs(c)
		return
	case p.phase == inPairName && c != '{' && c != '<' && c != '\n' && len(r.name) < maxName:
		r.name = append(r.name, c)
	default:
		r.refuse(r.at)
		r.plain(c)
		return
	}
	if r.at+1-r.decided > maxHead {
		r.refuse(r.at + 1)
	}
}

// openPairs begins an object or a list.
func (r *Reader) openPairs(c byte) {
	p := &r.pairs
	r.piece(r.comma()+string(c), r.at+1)
	p.inside, p.further = append(p.inside, c), false
	if p.phase = beforePair; c == '[' {
		p.phase = beforeItem
	}
	r.decided = r.at + 1
}

// comma returns what is between the last value of a list and the next one. In an object it comes before the key.
func (r *Reader) comma() string {
	if p := &r.pairs; p.begun() && !p.inObject() && p.further {
		return ", "
	}
	return ""
}

// argumentByte takes a byte of the arguments.
func (r *Reader) argumentByte(c byte) {
	switch p := &r.pairs; p.phase {
	case inQuotedKey, inQuotedItem, inBareKey, inBareItem:
		r.content(c)
	case inJSONKey, inJSONItem:
		r.jsonByte(c)
	case beforePair, beforeItem:
		r.beforeContent(c)
	default:
		r.betweenPairs(c)
	}
}

// beforeContent takes a byte where a key or a value may begin.
func (r *Reader) beforeContent(c byte) {
	p := &r.pairs
	switch pair := p.phase == beforePair; {
	case isSpace(c):
		r.decided = r.at + 1
	case pair && c == '}', !pair && c == ']' && !p.inObject():
		r.closePairs()
	case c == '"':
		r.openText(pair, inJSONKey, inJSONItem, r.at+1)
	case !pair && (c == '{' || c == '['):
		r.openPairs(c)
	case (c == ',' || c == '}') && (pair || !p.inObject()):
		r.misfit(c)
	default: // something bare, or a marker, before which nothing bare comes
		p.phase, p.from, p.text, p.open = inBareItem, r.at, p.text[:0], false
		if pair {
			p.phase = inBareKey
		}
		r.content(c)
	}
}

// openText begins a key or a value in quotes that end before an offset.
func (r *Reader) openText(isKey bool, key, value pairPhase, end int) {
	p := &r.pairs
	if p.phase = value; isKey {
		p.phase, p.from, p.text = key, end, p.text[:0]
	} else {
		r.piece(r.comma()+`"`, end)
	}
	r.decided, p.escaped = end, false
}

// betweenPairs takes a byte after a key or a value.
func (r *Reader) betweenPairs(c byte) {
	p := &r.pairs
	switch {
	case len(r.word) > 0 || c == '<':
		if !r.inPairMark(c) {
			r.misfit(c)
		}
	case isSpace(c):
		r.decided = r.at + 1
	case p.phase == afterPairKey && c == ':':
		r.endKey(p.key)
	case p.phase == afterItem && c == ',':
		if p.phase = beforeItem; p.inObject() {
			p.phase = beforePair
		}
		r.decided = r.at + 1
	case p.phase == afterItem && (c == '}' && p.inObject() || c == ']' && !p.inObject()):
		r.closePairs()
	default:
		r.misfit(c)
	}
}

// pairMarks returns the markers that may come now.
func (r *Reader) pairMarks() []string {
	p := &r.pairs
	switch p.phase {
	case inQuotedKey, inQuotedItem:
		return quoteMarks
	case beforePair, beforeItem:
		return allMarks
	case inBareKey, inBareItem:
		if len(p.text) <= len(r.word) && !p.open {
			return allMarks
		}
		return outerMarks
	case afterPairKey, afterItem:
		return outerMarks
	}
	return nil
}

// The markers in each phase.
var (
	quoteMarks = []string{quoteMark}
	outerMarks = []string{pairsEnd, pairsBegin}
	allMarks   = []string{quoteMark, pairsEnd, pairsBegin}
)

// inPairMark reports whether c goes on with a marker. At its end inPairMark does what follows from it.
func (r *Reader) inPairMark(c byte) bool {
	if len(r.word) == 0 && c != '<' {
		return false
	}
	marks := r.pairMarks()
	r.word = append(r.word, c)
	for _, m := range marks {
		if !r.spells(m) || !bytes.HasPrefix([]byte(m), r.word) {
			continue
		}
		if len(m) == len(r.word) {
			r.word = r.word[:0]
			r.meetPair(m, r.at+1)
		}
		return true
	}
	return false
}

// closePairs ends the innermost object or list. With the outermost the call ends.
func (r *Reader) closePairs() {
	p := &r.pairs
	if len(p.inside) == 1 {
		r.endPairs(r.at+1, r.at+1)
		return
	}
	r.closeOne(r.at + 1)
	r.endItem(r.at + 1)
}

// closeOne writes the end of the innermost object or list.
func (r *Reader) closeOne(end int) {
	p := &r.pairs
	last := len(p.inside) - 1
	r.piece(map[byte]string{'{': "}", '[': "]"}[p.inside[last]], end)
	p.inside = p.inside[:last]
}

// endPairs ends the call, and what is open in it. Something before an offset completes it, and all before another is
// decided.
func (r *Reader) endPairs(end, decided int) {
	p := &r.pairs
	if p.phase == beforeItem && p.inObject() {
		r.piece(`""`, end)
	}
	for p.begun() {
		r.closeOne(end)
	}
	r.clear(decided)
	r.completes(afterCall)
}

// meetPair does what follows from an expected marker that ends before an offset.
func (r *Reader) meetPair(marker string, end int) {
	p := &r.pairs
	start := end
	if !r.marked {
		start -= len(marker)
	}
	switch isKey := p.phase == inBareKey || p.phase == beforePair; {
	case marker != quoteMark:
		r.cutPairs(end, start)
		if r.expects(marker) {
			r.meet(marker, end)
		}
	case p.phase == inQuotedKey:
		p.key, p.phase = string(p.text[:start-p.from]), afterPairKey
	case p.phase == inQuotedItem:
		r.streamText(start)
		r.piece(`"`, end)
		r.endItem(end)
	default:
		r.openText(isKey, inQuotedKey, inQuotedItem, end)
	}
}

// cutPairs ends the call with a marker that begins at an offset and ends before another.
func (r *Reader) cutPairs(end, start int) {
	p := &r.pairs
	if p.phase == inBareItem && start > p.from {
		r.endBare(end, start)
	} else if p.phase == inBareItem {
		p.phase = beforeItem
	}
	r.endPairs(end, start)
}

// markPair takes a control token. It reports whether the call goes on.
func (r *Reader) markPair(marker string) bool {
	p := &r.pairs
	r.marked = true
	defer func() { r.marked = false }()
	switch {
	case !p.begun():
		r.refuse(r.at)
		return false
	case len(r.word) == 0 && marker == quoteMark && slices.Contains(r.pairMarks(), marker):
		r.meetPair(marker, r.at)
		return true
	case p.phase == inQuotedKey, p.phase == inQuotedItem, p.phase == inJSONKey, p.phase == inJSONItem: // it has no text
		return true
	}
	r.word = r.word[:0]
	r.cutPairs(r.at, r.at)
	return false
}
