package calls

import (
	"slices"
	"strings"
)

// Bounds on the text that is undecided, in bytes. What exceeds them is text.
const (
	maxSpace = 64      // white space that may belong to a tag after it
	maxFeeds = 2       // line feeds between reasoning and the text of a format
	maxHead  = 4 << 10 // of a call, up to its arguments
)

// Options say what a Reader looks for.
type Options struct {
	Form Form
	// Control are the markers of Form that are control tokens of the vocabulary. They are recognised by [Reader.Mark]
	// alone: characters that spell one are text.
	Control []string
	// Tools are the names of the tools that may be called. What calls another one is text.
	Tools []string
	// Types are the types of their parameters, for the forms that write strings without quotes; see [TypesOf].
	Types map[string]map[string]Types
	// Apart: reasoning is in spans of its own. Otherwise it is text with its tags. Neither has calls in it.
	Apart bool
	// Inside: the prompt ends with the tag that begins reasoning.
	Inside bool
	// Exact: what follows reasoning is the text of a format, but for at most two line feeds at its beginning.
	Exact bool
	// Single: the completion ends with its first call.
	Single bool
	// ID returns the id of a call.
	ID func(index int) string
}

// Reader divides a completion's text into spans. It takes the text byte by byte, so the spans do not depend on the
// pieces in which it comes.
type Reader struct {
	// Spans are the decided spans. Who has used one removes it.
	Spans []Span

	options Options
	texts   []string // the markers that characters can spell

	state   state
	at      int    // offset of the next byte
	decided int    // all bytes before are in a span, or in none for good
	word    []byte // the undecided bytes at the end that may become a marker
	spaced  int    // undecided white space before word
	skip    bool   // white space that comes now belongs to the tag before it
	feeds   int    // so many line feeds do, if options.Exact, and nothing else

	call     object
	name     []byte // of a call of Mistral's newer form
	tool     string // the name of a call's tool; empty while unknown
	held     Span   // arguments that came before the name; empty without
	elements elements
	pairs    pairs
	listed   listedPhase
	marked   bool // a control token is taken
	reasons  bool // the message in a channel is reasoning
	list     bool // the call is in a list, which has not ended
	index    int  // of the next call
	complete int  // calls whose arguments have ended
}

// state is what a Reader expects.
type state int

const (
	atStart           state = iota // reasoning, a call or text
	inTitle                        // the title of reasoning
	inReasoning                    // its end
	atAnswer                       // a call or text
	inAnswer                       // text, or a call with a marker
	inHead                         // the object of a call, up to its arguments
	inName                         // the name of a call of Mistral's newer form, or a list of objects
	inCallID                       // the id that may follow the name
	beforeArgs                     // the arguments of that form
	inArgs                         // the rest of a call's arguments
	inTail                         // the rest of a call's object
	inListed                       // a call in a list of the family DeepSeek, up to its arguments
	inElements                     // the rest of a call whose parameters are elements
	inPairs                        // the rest of a call of the family Gemma
	afterCall                      // the end of a call, a further call, or text
	inHeader                       // what a message of the form Channels begins with, up to its text
	inMessage                      // its text
	beforeMessageArgs              // the arguments of a call
	afterMessage                   // its end
	ended                          // nothing: what comes is left out
)

// NewReader returns a Reader of a completion.
func NewReader(o Options) *Reader {
	if len(o.Tools) == 0 {
		o.Form.Family = None
	}
	if o.Form.Channels {
		return &Reader{options: o, state: inHeader}
	}
	r := &Reader{options: o, state: atAnswer}
	for _, m := range o.Form.Markers() {
		if !slices.Contains(o.Control, m) {
			r.texts = append(r.texts, m)
		}
	}
	if o.Form.Family == Lined {
		for _, tool := range o.Tools {
			r.texts = append(r.texts, tool+"\n")
		}
	}
	switch {
	case o.Form.End != "" && o.Inside:
		r.beginReasoning()
	case o.Form.End != "":
		r.state = atStart
	}
	return r
}

// Decided returns the number of bytes that are in a span, or in none for good.
func (r *Reader) Decided() int { return r.decided }

// Calls returns the number of calls whose arguments are complete.
func (r *Reader) Calls() int { return r.complete }

// Ended reports whether the completion has its only call, so that nothing may follow.
func (r *Reader) Ended() bool { return r.state == ended }

// Push adds text.
func (r *Reader) Push(text string) {
	for i := range len(text) {
		r.step(text[i])
		r.at++
		if r.state == ended {
			r.decided = r.at
		}
	}
}

// step takes the byte at r.at.
func (r *Reader) step(c byte) {
	switch r.state {
	case inHead:
		r.head(c)
	case inName, inCallID, beforeArgs:
		r.named(c)
	case inArgs:
		r.argument(c)
	case inTail:
		r.tail(c)
	case inElements:
		r.element(c)
	case inListed:
		r.listedByte(c)
	case inPairs:
		r.pairByte(c)
	case inTitle:
		r.titleByte(c)
	case inHeader, inMessage, beforeMessageArgs, afterMessage:
		r.channelByte(c)
	case ended:
	default:
		r.plain(c)
	}
}

// Mark adds a control token that is a marker. It has no text.
func (r *Reader) Mark(marker string) {
	if r.options.Form.Channels {
		r.markChannel(marker)
		return
	}
	names := r.state == inName && (marker == argsMark || marker == idMark) || r.state == inCallID && marker == argsMark
	switch {
	case names && len(r.word) == 0 && r.knows():
		r.meet(marker, r.at)
		return
	case r.state == inListed:
		if r.markListed(marker) {
			return
		}
	case r.state == inElements:
		if r.markElement(marker) {
			return
		}
	case r.state == inPairs:
		if r.markPair(marker) {
			return
		}
	case r.state == inTitle:
		r.endTitle(true)
	case r.state == inTail:
		r.state, r.skip = afterCall, true
	case r.state == inHead, r.state == inName, r.state == inCallID, r.state == beforeArgs:
		r.refuse(r.at)
	case len(r.word) > 0:
		r.settle(r.at)
	}
	if r.expects(marker) {
		r.meet(marker, r.at)
	}
}

// End ends the text: all of it is decided, and the beginning of a call is text.
func (r *Reader) End() {
	switch {
	case r.state == ended:
		return
	case r.options.Form.Channels:
		r.endChannels()
	case r.state == inTitle:
		r.endTitle(true)
	case r.inArguments(): // a part of a value is none of the text
		r.clear(r.at)
	default:
		r.settle(r.at)
	}
	r.state = ended
}

// plain takes a byte where text, reasoning or a marker may be.
func (r *Reader) plain(c byte) {
	if len(r.word) > 0 {
		if r.word = append(r.word, c); r.matches() {
			return
		}
		r.settle(r.at) // no marker but a tool's name has its first byte twice, so c at the earliest begins another one
	}
	switch {
	case isSpace(c):
		r.space(c)
	case r.opens(c):
		r.open(c)
	default:
		if r.word = append(r.word[:0], c); !r.matches() {
			r.settle(r.at + 1)
		}
	}
}

// space takes a byte of white space. It is undecided where a tag may follow.
func (r *Reader) space(c byte) {
	if r.skip && r.state == atAnswer && r.options.Exact {
		r.skip = c == '\n' && r.feeds < maxFeeds
		r.feeds++
	}
	if r.skip {
		r.decided = r.at + 1
		return
	}
	r.spaced++
	tag := r.options.Form.Family != None
	switch r.state {
	case inReasoning:
		tag = r.options.Apart
	case atStart:
		tag = true
	}
	if !tag || r.spaced > maxSpace {
		r.settle(r.at + 1)
	}
}

// matches reports whether word may become an expected marker. Once it is one, matches does what follows from it.
func (r *Reader) matches() bool {
	for _, m := range r.texts {
		if r.expects(m) && strings.HasPrefix(m, string(r.word)) {
			if len(m) == len(r.word) {
				r.meet(m, r.at+1)
			}
			return true
		}
	}
	return false
}

// spells reports whether characters can spell a marker.
func (r *Reader) spells(marker string) bool {
	return marker == fenceBegin || slices.Contains(r.texts, marker)
}

// expects reports whether a marker has an effect now.
func (r *Reader) expects(marker string) bool {
	switch marker {
	case r.options.Form.Begin:
		return r.state == atStart || r.reasonsAgain()
	case r.options.Form.End:
		return r.state == inReasoning || r.options.Apart && r.reasonsAgain()
	case callEnd, pipeEnd, pairsEnd, resultBegin:
		return r.state == afterCall
	case callsEnd, oneBegin, oneEnd, fenceEnd:
		return r.state == afterCall && r.list
	case callBegin, pipeBegin, pythonTag, toolCalls, callsBegin, pairsBegin:
		return r.state == atStart || r.state == atAnswer || r.state == inAnswer || r.state == afterCall
	case idMark:
		return r.state == inName
	case argsMark:
		return r.state == inName || r.state == inCallID
	}
	return r.options.Form.Family == Lined && (r.state == atStart || r.state == atAnswer)
}

// meet does what follows from an expected marker that ends before an offset.
func (r *Reader) meet(marker string, end int) {
	switch marker {
	case r.options.Form.Begin, r.options.Form.End:
		if !r.options.Apart {
			r.emit(Text, end)
		}
		r.clear(end)
		if marker == r.options.Form.Begin {
			r.beginReasoning()
			return
		}
		r.state, r.skip = atAnswer, r.options.Apart
	case callEnd, pipeEnd, callsEnd, oneEnd, fenceEnd, pairsEnd:
		r.list = r.list && marker != callsEnd && marker != pipeEnd
		r.clear(end)
		r.skip = true
	case callsBegin:
		r.beginListed(beforeListed)
	case oneBegin:
		r.beginListed(beforeSep)
	case pairsBegin:
		r.beginPairs()
	case resultBegin: // what follows would be the tool's result, which the model does not know
		r.clear(end)
		r.state = ended
	case callBegin, pythonTag:
		if f := r.options.Form.Family; f == Coder || f == GLM {
			r.beginElements()
			return
		}
		r.begin(inHead)
	case toolCalls, pipeBegin:
		r.begin(inName)
		r.name, r.list = r.name[:0], false
	case idMark:
		r.word, r.state = r.word[:0], inCallID
	case argsMark:
		r.word, r.state = r.word[:0], beforeArgs
	default: // of the family Lined
		r.begin(beforeArgs)
		r.tool = strings.TrimSuffix(marker, "\n")
	}
}

// settle decides that all bytes before an offset are what the state says.
func (r *Reader) settle(end int) {
	kind := Text
	if r.state == inReasoning && r.options.Apart {
		kind = Reasoning
	}
	r.emit(kind, end)
	if end > r.decided && r.state != inReasoning {
		r.state = inAnswer
	}
	r.clear(end)
}

// clear leaves nothing undecided before an offset.
func (r *Reader) clear(end int) {
	r.decided, r.word, r.spaced, r.skip = end, r.word[:0], 0, false
}
