package calls

import "encoding/json"

// object follows a JSON object byte by byte. It checks the members' form, and of values that are lists or objects
// only where they end.
type object struct {
	phase   phase
	key     []byte // of the current member, with its quotes
	text    []byte // of the current member's value, if it is a string, with its quotes
	depth   int    // of the current value, if it is a list or an object
	quoted  bool   // in a string of that value
	escaped bool   // after a backslash in a string
}

type phase int

const (
	beforeObject phase = iota
	beforeFirstKey
	beforeKey
	inKey
	beforeColon
	beforeValue
	inText     // a value that is a string
	inNested   // a value that is a list or an object
	inScalar   // another value
	afterValue // before a comma or the end
)

// event is what a byte does to an object.
type event int

const (
	nothing    event = iota
	malformed        // no object has this byte here
	valueBegin       // the byte is the first of a member's value
	valueEnd         // the byte is the last of a value that is a string, a list or an object
	objectEnd        // the byte is the object's last
)

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// step takes the next byte.
func (o *object) step(c byte) event {
	switch o.phase {
	case inKey:
		if o.key = append(o.key, c); o.endsString(c) {
			o.phase = beforeColon
		}
		return nothing
	case inText:
		if o.text = append(o.text, c); o.endsString(c) {
			o.phase = afterValue
			return valueEnd
		}
		return nothing
	case inNested:
		return o.nested(c)
	}
	if isSpace(c) {
		if o.phase == inScalar {
			o.phase = afterValue
		}
		return nothing
	}
	return o.between(c)
}

// between takes a byte that is neither white space nor in a string, a list or an object.
func (o *object) between(c byte) event {
	switch {
	case o.phase == beforeObject && c == '{':
		o.phase = beforeFirstKey
	case (o.phase == beforeFirstKey || o.phase == beforeKey) && c == '"':
		o.key, o.phase = append(o.key[:0], c), inKey
	case o.phase == beforeColon && c == ':':
		o.phase = beforeValue
	case o.phase == beforeValue && startsValue(c):
		o.begin(c)
		return valueBegin
	case o.phase == inScalar && c != ',' && c != '}':
		if !startsValue(c) && c != '.' && c != '+' && c != 'E' {
			return malformed
		}
	case (o.phase == afterValue || o.phase == inScalar) && c == ',':
		o.phase = beforeKey
	case (o.phase == afterValue || o.phase == inScalar || o.phase == beforeFirstKey) && c == '}':
		return objectEnd
	default:
		return malformed
	}
	return nothing
}

// startsValue reports whether a JSON value can begin with c; a number, true, false and null are made of such bytes too.
func startsValue(c byte) bool {
	return c == '"' || c == '{' || c == '[' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
}

// begin begins a value.
func (o *object) begin(c byte) {
	switch c {
	case '"':
		o.text, o.phase = append(o.text[:0], c), inText
	case '{', '[':
		o.depth, o.phase = 1, inNested
	default:
		o.phase = inScalar
	}
}

// nested takes a byte of a list or an object.
func (o *object) nested(c byte) event {
	switch {
	case o.quoted:
		o.quoted = !o.endsString(c)
	case c == '"':
		o.quoted = true
	case c == '{' || c == '[':
		o.depth++
	case c == '}' || c == ']':
		if o.depth--; o.depth == 0 {
			o.phase = afterValue
			return valueEnd
		}
	}
	return nothing
}

// endsString reports whether c ends the string that it is in.
func (o *object) endsString(c byte) bool {
	if o.escaped {
		o.escaped = false
		return false
	}
	o.escaped = c == '\\'
	return c == '"'
}

// unquoted returns the value of a JSON string; empty if it is malformed.
func unquoted(text []byte) (s string) {
	_ = json.Unmarshal(text, &s)
	return s
}
