package calls

import "bytes"

// valueByte takes a byte of a parameter's value, or of the tag after it.
func (r *Reader) valueByte(c byte) {
	e := &r.elements
	lines := r.options.Form.Family == Coder // a line feed at each end of a value is none of it
	if e.phase == atValue {
		if e.phase = inValue; lines && c == '\n' {
			e.from, r.decided = r.at+1, r.at+1
			return
		}
	}
	before := len(r.word)
	is := r.inTag(c)
	if !is && before > 0 { // what looked like the tag is of the value
		e.feed, r.word = false, r.word[:0]
		is = r.inTag(c)
	}
	if !is {
		e.feed, r.word = lines && c == '\n', r.word[:0]
	}
	switch {
	case e.phase != inValue: // the tag has ended it
	case e.mode == held:
		r.hold(c)
	default:
		r.stream(r.at + 1)
	}
}

// hold keeps a byte of a value until its end decides what it is. A long value is decided by its beginning.
func (r *Reader) hold(c byte) {
	e := &r.elements
	if e.value = append(e.value, c); len(e.value) <= maxHead {
		return
	}
	mode := quoted
	if first := bytes.TrimSpace(e.value)[:1]; e.types != 0 && e.types&stringType == 0 && (first[0] == '{' || first[0] == '[') {
		mode = raw
	}
	r.openValue(mode, e.from+1)
	r.stream(r.at + 1)
}

// openValue decides what a value's bytes are.
func (r *Reader) openValue(m valueMode, end int) {
	if r.elements.mode = m; m == quoted {
		r.piece(`"`, end)
	}
}

// stream makes the bytes of a value before an offset pieces of the arguments, but for what may belong to the tag after
// it.
func (r *Reader) stream(end int) {
	e := &r.elements
	if end -= len(r.word); e.feed {
		end--
	}
	if end > r.decided {
		r.emitPart(Arguments, end, e.mode == quoted)
		r.decided = end
	}
}

// endValue ends a value before an offset with the tag that ends before another.
func (r *Reader) endValue(stop, end int) {
	e := &r.elements
	if e.mode == held {
		r.settleValue(stop, end)
	} else {
		r.stream(stop)
		if e.mode == quoted {
			r.piece(`"`, end)
		}
	}
	e.phase = betweenParameters
	r.decided, r.word = end, r.word[:0]
}

// settleValue adds a value that was held.
func (r *Reader) settleValue(stop, end int) {
	e := &r.elements
	if e.feed {
		stop--
	}
	value := string(e.value[:stop-e.from])
	if json, is := e.types.valueOf(value); is {
		r.piece(json, end)
		return
	}
	r.piece(`"`+escaped(value)+`"`, end)
}
