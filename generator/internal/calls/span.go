package calls

// Kind is the kind of a span.
type Kind int

// The kinds of spans.
const (
	Text      Kind = iota
	Reasoning      // without its tags and the white space beside them
	Call           // a call begins: a span without bytes, at its arguments, with its id and name
	Arguments      // of the call before
)

// Span is a part of a completion's text. Bytes in no span are tags, white space beside them, and what a call has
// beside its arguments.
type Span struct {
	Kind       Kind
	Start, End int // offsets in the completion's text
	Index      int // of the call, also of its Arguments
	// Text are Arguments that are not as the model wrote them: then the span has no bytes. Quoted are those that the
	// model wrote as they are, and that are in a JSON string.
	Text   string
	Quoted bool
	// After: a control token completes a span without bytes, which is at its end. Otherwise the byte there does.
	After bool
	// The fields below are those of a Call.
	ID, Name string
	// Arguments are "{}" for a call that was written without any: then no span of Arguments follows.
	Arguments string
}

// Part returns what the bytes of a span of Arguments, or some of them, add to the JSON text.
func (s *Span) Part(bytes string) string {
	switch {
	case s.Text != "":
		return s.Text
	case s.Quoted:
		return escaped(bytes)
	}
	return bytes
}

// emit makes the undecided bytes before an offset a span, or a part of the last one.
func (r *Reader) emit(k Kind, end int) { r.emitPart(k, end, false) }

// emitPart is emit for bytes that may be quoted.
func (r *Reader) emitPart(k Kind, end int, quoted bool) {
	if end <= r.decided {
		return
	}
	if n := len(r.Spans); n > 0 {
		if last := &r.Spans[n-1]; last.Kind == k && last.End == r.decided && last.Text == "" {
			last.End = end
			return
		}
	}
	r.Spans = append(r.Spans, Span{Kind: k, Start: r.decided, End: end, Index: max(0, r.index-1), Quoted: quoted})
}
