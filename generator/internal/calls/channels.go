package calls

import (
	"slices"
	"strings"
)

// Markers of gpt-oss, whose completions are messages: <|start|>, a role, <|channel|>, a channel, <|message|>, the text,
// and one of three ends. A prompt ends after the role of the first one. The channel analysis has reasoning. A message to
// a function, to=functions.NAME after the role or the channel, is a call; <|constrain|> comes before the arguments'
// type.
const (
	startMark     = "<|start|>"
	channelMark   = "<|channel|>"
	constrainMark = "<|constrain|>"
	messageMark   = "<|message|>"
	messageEnd    = "<|end|>"
	callMark      = "<|call|>"
	returnMark    = "<|return|>"

	analysis = "analysis"
	toTool   = "to=functions."
)

// Final begins the text of an answer after a prompt in the form Channels. With it a format bounds the answer from its
// first token on, without reasoning.
const Final = channelMark + "final" + messageMark

var channelMarks = []string{startMark, channelMark, constrainMark, messageMark, messageEnd, callMark, returnMark}

// maxHeader bounds what comes before a message's text, in bytes.
const maxHeader = 512

// channelByte takes a byte of a message.
func (r *Reader) channelByte(c byte) {
	switch r.state {
	case inHeader:
		if r.name = append(r.name, c); len(r.name) > maxHeader || !headed(string(r.name)) {
			r.beginText(false)
			r.emit(Text, r.at+1)
			r.decided = r.at + 1
		}
	case inMessage:
		kind := Text
		if r.reasons && r.options.Apart {
			kind = Reasoning
		}
		r.emit(kind, r.at+1)
		r.decided = r.at + 1
	case beforeMessageArgs:
		r.messageArgs(c)
	case afterMessage:
		r.decided = r.at + 1
	}
}

// headed reports whether a text may be what comes before a message's text. Without a channel it is the role, and to whom
// the message goes.
func headed(text string) bool {
	const role, to = "assistant", " to="
	if strings.Contains(text, channelMark) || strings.HasPrefix(role, text) {
		return true
	}
	text = strings.TrimPrefix(text, role)
	return strings.HasPrefix(to, text) || strings.HasPrefix(text, to)
}

// messageArgs takes a byte before the arguments of a call. What is no JSON object is text.
func (r *Reader) messageArgs(c byte) {
	switch {
	case c == '{':
		r.start(r.at)
		r.emit(Arguments, r.at+1)
		r.decided, r.state = r.at+1, inArgs
		r.call.begin(c)
	case isSpace(c):
		r.decided = r.at + 1
	default:
		r.beginText(false)
		r.channelByte(c)
	}
}

// markChannel takes a control token.
func (r *Reader) markChannel(marker string) {
	switch {
	case r.state == ended:
	case r.state == inHeader && marker == messageMark:
		r.beginMessage()
	case r.state == inHeader && (marker == channelMark || marker == constrainMark):
		r.name = append(r.name, marker...)
	case marker == messageMark || marker == constrainMark: // within a text
	default:
		r.endMessage()
		r.begin(inHeader)
		if r.name = r.name[:0]; marker == channelMark {
			r.name = append(r.name, marker...)
		}
		r.decided = r.at
		if r.options.Single && r.complete > 0 {
			r.state = ended
		}
	}
}

// beginMessage begins the text of a message whose header is r.name.
func (r *Reader) beginMessage() {
	header := string(r.name)
	_, channel, _ := strings.Cut(header, channelMark)
	_, to, called := strings.Cut(header, toTool)
	tool := word(to)
	r.clear(r.at)
	if called && r.options.Form.Family == Channelled && slices.Contains(r.options.Tools, tool) {
		r.begin(beforeMessageArgs)
		r.tool = tool
		return
	}
	r.beginText(word(channel) == analysis)
}

// word returns the beginning of a text up to a space or a marker.
func word(text string) string {
	if at := strings.IndexAny(text, " <"); at >= 0 {
		return text[:at]
	}
	return text
}

// beginText begins the text of a message that is no call.
func (r *Reader) beginText(reasons bool) { r.state, r.reasons = inMessage, reasons }

// endMessage ends a message, or what there is of its header. A call without arguments has an empty object.
func (r *Reader) endMessage() {
	if r.state != beforeMessageArgs {
		return
	}
	r.marked = true
	r.start(r.at)
	r.marked = false
	r.Spans[len(r.Spans)-1].Arguments = "{}"
	r.completes(afterMessage)
}

// endChannels ends the text within a message. A header without a channel is text.
func (r *Reader) endChannels() {
	if r.state == inHeader && !strings.Contains(string(r.name), channelMark) {
		r.emit(Text, r.at)
	}
	r.endMessage()
	r.clear(r.at)
}
