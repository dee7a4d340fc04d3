package calls

import (
	"bytes"
	"slices"
)

// elements follows a call whose parameters are elements: <function=f><parameter=a>…, or f<arg_key>a</arg_key>….
type elements struct {
	phase elementPhase
	begun bool   // the call is one
	key   []byte // of the current parameter
	types Types  // of the current parameter
	value []byte // of the current parameter with what may be its end, while it is held
	from  int    // offset of the value
	mode  valueMode
	feed  bool // the byte before word is a line feed that may belong to the tag after the value
}

type elementPhase int

const (
	beforeFunction    elementPhase = iota // the tag with the name, in the form Coder
	inFunction                            // the name
	betweenParameters                     // a parameter or the end
	inParameter                           // its name
	afterParameter                        // the tag before its value, in the form GLM
	atValue                               // the value's first byte
	inValue
)

// valueMode says what becomes of a value's bytes.
type valueMode int

const (
	held   valueMode = iota // its end decides
	quoted                  // they are of a JSON string
	raw                     // they are JSON
)

// beginElements begins such a call.
func (r *Reader) beginElements() {
	r.begin(inElements)
	r.name = r.name[:0]
	r.elements = elements{key: r.elements.key[:0], value: r.elements.value[:0]}
	if r.options.Form.Family == GLM {
		r.elements.phase = inFunction
	}
}

// tags returns the tags that may come now.
func (r *Reader) tags() []string {
	coder := r.options.Form.Family == Coder
	switch r.elements.phase {
	case beforeFunction:
		return functionTags
	case betweenParameters:
		if coder {
			return parameterTags
		}
		return keyTags
	case inFunction:
		if !coder {
			return keyTags
		}
	case inParameter:
		if !coder {
			return keyEndTags
		}
	case afterParameter:
		return valueTags
	case atValue, inValue:
		if coder {
			return parameterEndTags
		}
		return valueEndTags
	}
	return nil
}

// The tags of each phase.
var (
	functionTags     = []string{functionBegin}
	parameterTags    = []string{parameterBegin, functionEnd}
	parameterEndTags = []string{parameterEnd}
	keyTags          = []string{keyBegin, callEnd}
	keyEndTags       = []string{keyEnd}
	valueTags        = []string{valueOpen}
	valueEndTags     = []string{valueClose}
)

// element takes a byte of such a call.
func (r *Reader) element(c byte) {
	e := &r.elements
	if e.phase == atValue || e.phase == inValue {
		r.valueByte(c)
		return
	}
	if len(r.word) == 0 && isSpace(c) && e.phase != inParameter && (e.phase != inFunction || len(r.name) == 0) {
		if e.begun {
			r.decided = r.at + 1
		}
	} else if !r.inTag(c) && !r.nameByte(c) {
		r.misfit(c)
		return
	}
	if !e.begun && r.state == inElements && r.at+1-r.decided > maxHead {
		r.refuse(r.at + 1)
	}
}

// inTag reports whether c goes on with a tag. At its end inTag does what follows from it.
func (r *Reader) inTag(c byte) bool {
	if len(r.word) == 0 && c != '<' {
		return false
	}
	r.word = append(r.word, c)
	for _, tag := range r.tags() {
		if !bytes.HasPrefix([]byte(tag), r.word) || !r.spells(tag) {
			continue
		}
		if len(tag) == len(r.word) {
			r.word = r.word[:0]
			r.meetTag(tag, r.at+1)
		}
		return true
	}
	return false
}

// nameByte takes a byte of the name of the tool or of a parameter. It reports whether there may be one.
func (r *Reader) nameByte(c byte) bool {
	e, coder := &r.elements, r.options.Form.Family == Coder
	name := &r.name
	if e.phase == inParameter {
		name = &e.key
	}
	switch {
	case e.phase != inFunction && e.phase != inParameter, len(r.word) > 0:
		return false
	case coder && c == '>' && e.phase == inParameter:
		r.parameter(r.at + 1)
		return true
	case coder && c == '>', !coder && c == '\n' && e.phase == inFunction:
		e.phase = betweenParameters
		return r.called()
	case c == '\n' || len(*name) == maxName:
		return false
	}
	*name = append(*name, c)
	return true
}

// called reports whether the name is a tool's.
func (r *Reader) called() bool {
	r.tool = string(bytes.TrimSpace(r.name))
	return slices.Contains(r.options.Tools, r.tool)
}

// meetTag does what follows from an expected tag that ends before an offset.
func (r *Reader) meetTag(tag string, end int) {
	e := &r.elements
	switch tag {
	case functionBegin:
		e.phase = inFunction
	case parameterBegin, keyBegin:
		if e.phase == inFunction && !r.called() {
			r.refuse(end)
			return
		}
		e.phase, e.key = inParameter, e.key[:0]
	case keyEnd:
		e.phase = afterParameter
	case valueOpen:
		r.parameter(end)
	case parameterEnd, valueClose:
		r.endValue(end-len(tag), end)
	case functionEnd, callEnd:
		if e.phase == inFunction && !r.called() {
			r.refuse(end)
			return
		}
		r.endElements(end)
	}
}

// parameter begins the value of a parameter at an offset. With its first parameter a call is one.
func (r *Reader) parameter(at int) {
	e := &r.elements
	before := ", "
	if !e.begun {
		r.start(r.last(at))
		before, e.begun = "{", true
	}
	key := string(bytes.TrimSpace(e.key))
	r.piece(before+`"`+escaped(key)+`": `, at)
	e.types = r.options.Types[r.tool][key]
	e.phase, e.mode, e.from, e.value, e.feed = atValue, held, at, e.value[:0], false
	r.decided = at
	if e.types == stringType {
		r.openValue(quoted, at)
	}
}

// endElements ends the call before an offset.
func (r *Reader) endElements(end int) {
	if r.elements.begun {
		r.piece("}", end)
	} else {
		r.start(r.last(end))
		r.Spans[len(r.Spans)-1].Arguments = "{}"
	}
	r.clear(end)
	r.completes(afterCall)
}

// misfit takes a byte that no such call has here, and the beginning of a tag before it, as what follows the call. What
// was none yet is text.
func (r *Reader) misfit(c byte) {
	rest := append([]byte{}, r.word...)
	if len(rest) == 0 {
		rest = append(rest, c)
	}
	r.at -= len(rest) - 1
	switch {
	case r.pairs.begun():
		r.endPairs(r.at+1, r.at)
	case r.elements.begun:
		r.piece("}", r.at+1)
		r.clear(r.at)
		r.completes(afterCall)
	default:
		r.refuse(r.at)
	}
	for i, b := range rest {
		if i > 0 {
			r.at++
		}
		r.step(b)
	}
}

// markElement takes a control token. It reports whether the call goes on.
func (r *Reader) markElement(marker string) bool {
	e := &r.elements
	r.marked = true
	defer func() { r.marked = false }()
	switch {
	case len(r.word) == 0 && slices.Contains(r.tags(), marker):
		if e.phase != atValue && e.phase != inValue {
			r.meetTag(marker, r.at)
		} else {
			r.endValue(r.at, r.at)
		}
		return true
	case e.phase == atValue || e.phase == inValue: // it has no text
		return true
	case e.begun:
		r.piece("}", r.at)
		r.clear(r.at)
		r.completes(afterCall)
	default:
		r.refuse(r.at)
	}
	return false
}

// last returns the offset at which a span without bytes lies that something before an offset completes.
func (r *Reader) last(end int) int {
	if r.marked {
		return end
	}
	return end - 1
}

// piece adds a text to the arguments, which something before an offset completes.
func (r *Reader) piece(text string, end int) {
	at := r.last(end)
	r.Spans = append(r.Spans, Span{Kind: Arguments, Start: at, End: at, Index: r.index - 1, Text: text, After: r.marked})
}
