package calls

import (
	"bytes"
	"slices"
)

// maxName bounds the name of a tool, in bytes.
const maxName = 256

// opens reports whether c, without a marker, begins a call or goes on after one.
func (r *Reader) opens(c byte) bool {
	switch r.options.Form.Family {
	case Bare:
		return c == '{' && (r.state == atStart || r.state == atAnswer || r.state == afterCall) ||
			c == ';' && r.state == afterCall
	case Mistral, Piped:
		return r.list && r.state == afterCall && (c == ',' || c == ']')
	}
	return false
}

// open takes such a byte.
func (r *Reader) open(c byte) {
	if c == ']' {
		r.list = false
		r.clear(r.at + 1)
		r.skip = true
		return
	}
	r.begin(inHead)
	if c == '{' {
		r.head(c)
	}
}

// begin begins a call, which is undecided with the white space before it.
func (r *Reader) begin(s state) {
	r.state, r.word, r.spaced, r.skip = s, r.word[:0], 0, false
	r.call, r.tool, r.held = object{key: r.call.key[:0], text: r.call.text[:0]}, "", Span{}
}

// refuse decides that what looked like a call is text up to an offset.
func (r *Reader) refuse(end int) {
	r.emit(Text, end)
	r.clear(end)
	r.state = inAnswer
}

// head takes a byte of a call's object, up to its arguments.
func (r *Reader) head(c byte) {
	fits := true
	switch r.call.step(c) {
	case malformed:
		fits = false
	case valueBegin:
		fits = r.value(c)
	case valueEnd:
		r.valueEnds()
	case objectEnd:
		r.objectEnds()
	}
	switch {
	case !fits:
		r.refuse(r.at)
		r.plain(c)
	case r.state == inHead && r.at+1-r.decided > maxHead:
		r.refuse(r.at + 1)
	}
}

// value takes the first byte of a value in the head. It reports whether a call has such a member.
func (r *Reader) value(c byte) bool {
	switch string(r.call.key) {
	case `"name"`, `"id"`, `"type"`:
		return c == '"'
	case `"arguments"`, `"parameters"`:
		if c == '{' && r.tool != "" {
			r.start(r.at)
			r.emit(Arguments, r.at+1)
			r.decided, r.state = r.at+1, inArgs
		}
		r.held.Start = r.at
		return c == '{'
	}
	return false
}

// valueEnds ends a value in the head.
func (r *Reader) valueEnds() {
	switch string(r.call.key) {
	case `"arguments"`, `"parameters"`:
		r.held.End = r.at + 1
		return
	case `"name"`:
	default:
		return
	}
	if r.tool = unquoted(r.call.text); !r.knows() {
		r.refuse(r.at + 1)
	} else if r.held.End > 0 {
		end := r.held.End
		r.start(r.held.Start)
		r.emit(Arguments, end)
		r.decided = r.at + 1
		r.completes(inTail)
	}
}

// objectEnds ends an object without arguments, or without a name.
func (r *Reader) objectEnds() {
	if r.tool == "" {
		r.refuse(r.at + 1)
		return
	}
	r.start(r.at)
	r.Spans[len(r.Spans)-1].Arguments = "{}"
	r.clear(r.at + 1)
	r.completes(afterCall)
}

// start emits the span of a call whose arguments begin at an offset.
func (r *Reader) start(at int) {
	r.Spans = append(r.Spans, Span{Kind: Call, Start: at, End: at, Index: r.index, ID: r.options.ID(r.index),
		Name: r.tool, After: r.marked})
	r.index++
	r.decided = at
}

// completes ends a call's arguments.
func (r *Reader) completes(next state) {
	r.complete++
	r.state, r.skip = next, next == afterCall
	if r.options.Single {
		r.state = ended
	}
}

// knows reports whether the name of the call is a tool's.
func (r *Reader) knows() bool {
	if r.state == inName {
		r.tool = string(bytes.TrimSpace(r.name))
	}
	return slices.Contains(r.options.Tools, r.tool)
}

// named takes a byte after [TOOL_CALLS], up to the arguments.
func (r *Reader) named(c byte) {
	switch {
	case r.at-r.decided > maxHead:
		r.refuse(r.at)
		r.plain(c)
	case r.options.Form.Family == Lined:
		r.lined(c)
	case len(r.word) > 0 || c == '[' && (r.state == inCallID || r.state == inName && len(r.name) > 0):
		r.bracketed(c)
	case isSpace(c) && len(r.name) == 0, isSpace(c) && r.state == beforeArgs:
	case r.state == inName && len(r.name) == 0 && (c == '[' || c == '{'):
		r.list, r.state = c == '[', inHead
		if c == '{' {
			r.head(c)
		}
	case c == '{' && r.state != inCallID && r.knows():
		r.start(r.at)
		r.emit(Arguments, r.at+1)
		r.decided, r.state = r.at+1, inArgs
		r.name = r.name[:0]
		r.call.begin(c)
	case r.state == inName && c != '{' && len(r.name) < maxName && r.options.Form.Family != Piped:
		r.name = append(r.name, c)
	case r.state == inCallID:
	default:
		r.refuse(r.at)
		r.plain(c)
	}
}

// lined takes a byte after the line of a tool's name, up to the first one within the braces. No marker says that this is
// a call, so only what begins as an object of JSON is.
func (r *Reader) lined(c byte) {
	switch inside := len(r.word) > 0; {
	case isSpace(c) && !inside:
	case isSpace(c) && inside, c == '{' && !inside:
		r.word = append(r.word, c)
	case inside && (c == '"' || c == '}'):
		r.start(r.at - len(r.word))
		r.state = inArgs
		r.call.begin('{')
		for _, space := range r.word[1:] {
			r.call.step(space)
		}
		r.word = r.word[:0]
		r.argument(c)
	default:
		r.refuse(r.at)
		r.plain(c)
	}
}

// bracketed takes a byte of a marker after a call's name.
func (r *Reader) bracketed(c byte) {
	if r.word = append(r.word, c); !r.knows() || !r.matches() {
		r.refuse(r.at)
		r.plain(c)
	}
}

// argument takes a byte of a call's arguments.
func (r *Reader) argument(c byte) {
	r.emit(Arguments, r.at+1)
	r.decided = r.at + 1
	if r.call.step(c) == valueEnd {
		next := inTail
		if len(r.call.key) == 0 { // the arguments are no member of an object
			next = afterCall
		}
		if r.options.Form.Channels {
			next = afterMessage
		}
		r.completes(next)
	}
}

// tail takes a byte of a call's object after its arguments.
func (r *Reader) tail(c byte) {
	switch r.call.step(c) {
	case malformed:
		r.state, r.skip = afterCall, true
		r.plain(c)
		return
	case objectEnd:
		r.state, r.skip = afterCall, true
	}
	r.decided = r.at + 1
}
