package calls

import (
	"bytes"
	"slices"
	"strings"
)

// content takes a byte of a key or a value, or of a marker after it.
func (r *Reader) content(c byte) {
	p := &r.pairs
	phase, before := p.phase, len(r.word)
	is := r.inPairMark(c)
	if !is && before > 0 { // what looked like a marker is of the text
		r.word = r.word[:0]
		is = r.inPairMark(c)
	}
	if !is {
		r.word = r.word[:0]
	}
	switch {
	case r.state != inPairs || p.phase != phase: // a marker has ended it
	case !is && (phase == inBareKey || phase == inBareItem) && r.endsBare(c):
	case phase == inQuotedItem || p.open:
		r.streamText(r.at + 1)
	default:
		r.holdText(c)
	}
}

// streamText makes the bytes of a value before an offset pieces of the arguments, but for what may be a marker.
func (r *Reader) streamText(end int) {
	if end -= len(r.word); end > r.decided {
		r.emitPart(Arguments, end, true)
		r.decided = end
	}
}

// holdText keeps a byte of a key, or of a bare value until its end decides what it is. A long value is a string.
func (r *Reader) holdText(c byte) {
	p := &r.pairs
	p.text = append(p.text, c)
	switch {
	case p.phase != inBareItem && len(p.text) > maxName+len(r.word):
		r.endPairs(r.at+1, r.at+1)
	case p.phase == inBareItem && len(p.text) > maxHead:
		r.piece(r.comma()+`"`, p.from+1)
		p.open, r.decided = true, p.from
		r.streamText(r.at + 1)
	}
}

// endsBare reports whether c ends a bare key or value. If so, endsBare takes it.
func (r *Reader) endsBare(c byte) bool {
	p := &r.pairs
	switch {
	case p.phase == inBareKey && c == ':':
		r.endKey(string(bytes.TrimSpace(p.text)))
	case p.phase == inBareKey && (c == '}' || c == ','): // it has no value
		r.misfit(c)
	case p.phase == inBareItem && (c == ',' || c == '}' || c == ']'):
		r.endBare(r.at+1, r.at)
		r.betweenPairs(c)
	default:
		return false
	}
	return true
}

// jsonByte takes a byte of a JSON string.
func (r *Reader) jsonByte(c byte) {
	p := &r.pairs
	ends := c == '"' && !p.escaped
	p.escaped = c == '\\' && !p.escaped
	switch isKey := p.phase == inJSONKey; {
	case ends && isKey:
		p.key, p.phase = unquoted(slices.Concat([]byte(`"`), p.text, []byte(`"`))), afterPairKey
	case ends:
		r.piece(`"`, r.at+1)
		r.endItem(r.at + 1)
	case isKey:
		r.holdText(c)
	default:
		r.emit(Arguments, r.at+1)
		r.decided = r.at + 1
	}
}

// endKey ends a key with its colon.
func (r *Reader) endKey(key string) {
	p := &r.pairs
	before := ""
	if p.further {
		before = ", "
	}
	r.piece(before+`"`+escaped(key)+`": `, r.at+1)
	p.key, p.phase, r.decided = key, beforeItem, r.at+1
}

// endBare ends a bare value, which something before an offset decides, before another.
func (r *Reader) endBare(end, stop int) {
	p := &r.pairs
	if p.open {
		r.streamText(stop)
		r.piece(`"`, end)
	} else {
		types := Types(0)
		if len(p.inside) == 1 {
			types = r.options.Types[r.tool][p.key]
		}
		r.piece(r.comma()+types.bareJSON(string(p.text[:stop-p.from])), end)
	}
	r.endItem(stop)
}

// endItem ends a value before an offset.
func (r *Reader) endItem(end int) {
	r.decided, r.word = end, r.word[:0]
	r.pairs.phase, r.pairs.further, r.pairs.open = afterItem, true, false
}

// bareJSON returns the JSON text of a value without quotes: what is JSON, or what Python prints for true, false and
// null, and a string otherwise, or if the parameter is one.
func (t Types) bareJSON(value string) string {
	raw, is := (anyType &^ stringType).valueOf(value)
	if !is || t == stringType && typeOf([]byte(raw)) != nullType {
		return `"` + escaped(strings.TrimSpace(value)) + `"`
	}
	return raw
}
