package calls

import (
	"bytes"
	"strings"
)

// Markers of the family DeepSeek, and what is around its arguments in the older form.
const (
	callsBegin = "<｜tool▁calls▁begin｜>"
	callsEnd   = "<｜tool▁calls▁end｜>"
	oneBegin   = "<｜tool▁call▁begin｜>"
	oneEnd     = "<｜tool▁call▁end｜>"
	separator  = "<｜tool▁sep｜>"
	fenceBegin = "```json"
	fenceEnd   = "```"
	function   = "function" // the type of all tools
)

// listedPhase is what comes next in a call of the family DeepSeek.
type listedPhase int

const (
	beforeListed  listedPhase = iota // the marker that begins a call
	beforeSep                        // the tool's name or, in the older form, its type
	afterSep                         // its name, in the older form
	beforeFence                      // what begins the arguments' fence in that form
	beforeListArg                    // the arguments
)

// beginListed begins a call in a list.
func (r *Reader) beginListed(p listedPhase) {
	r.begin(inListed)
	r.name, r.listed, r.list = r.name[:0], p, true
}

// nextMark returns the text or control token that the call may go on with; empty: none.
func (r *Reader) nextMark() string {
	switch r.listed {
	case beforeListed:
		return oneBegin
	case beforeSep:
		return separator
	case beforeFence:
		return fenceBegin
	}
	return ""
}

// listedByte takes a byte of a call, up to its arguments.
func (r *Reader) listedByte(c byte) {
	named := r.listed == beforeSep || r.listed == afterSep
	switch {
	case len(r.word) > 0 || c == '<' || c == '`':
		r.inMark(c)
	case r.listed == afterSep && c == '\n' && len(r.name) > 0:
		if r.listed = beforeFence; !r.called() {
			r.refuse(r.at)
			r.plain(c)
		}
	case isSpace(c) && (!named || len(r.name) == 0):
	case named && len(r.name) < maxName && c != '\n':
		r.name = append(r.name, c)
	case r.listed == beforeListArg && c == '{':
		r.start(r.at)
		r.emit(Arguments, r.at+1)
		r.decided, r.state = r.at+1, inArgs
		r.call.begin(c)
	default:
		r.refuse(r.at)
		r.plain(c)
	}
	if r.state == inListed && r.at+1-r.decided > maxHead {
		r.refuse(r.at + 1)
	}
}

// inMark takes a byte of a marker.
func (r *Reader) inMark(c byte) {
	r.word = append(r.word, c)
	marker := r.nextMark()
	if !r.spells(marker) || !strings.HasPrefix(marker, string(r.word)) {
		r.misfit(c)
		return
	}
	if len(marker) == len(r.word) {
		r.meetListed(r.at + 1)
	}
}

// meetListed does what follows from the expected marker, which ends before an offset.
func (r *Reader) meetListed(end int) {
	r.word = r.word[:0]
	fits := true
	switch r.listed {
	case beforeListed:
		r.listed = beforeSep
	case beforeSep:
		if r.options.Form.Fenced {
			fits = string(bytes.TrimSpace(r.name)) == function
			r.name, r.listed = r.name[:0], afterSep
		} else {
			fits, r.listed = r.called(), beforeListArg
		}
	case beforeFence:
		r.listed = beforeListArg
	}
	if !fits {
		r.refuse(end)
	}
}

// markListed takes a control token. It reports whether the call goes on.
func (r *Reader) markListed(marker string) bool {
	if len(r.word) == 0 && marker == r.nextMark() {
		r.meetListed(r.at)
		return r.state == inListed
	}
	r.refuse(r.at)
	return false
}
