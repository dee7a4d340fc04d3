package protocol

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"
)

// A schema says what an item on the wire has to be. It is made from a message's
// Go struct, so that the struct stays the only definition. The check comes
// before msgpack decodes, because msgpack coerces: v5.4.1 turns a negative
// number into a uint64, any number into a shorter one, binary into a string,
// and nil into anything.
type schema struct {
	name     string // of the field, where it is one
	want     string // what has to be there, as an error says it
	kind     kind   // kindInt is any whole number
	min      int64  // of a whole number
	max      uint64
	optional bool
	elem     *schema        // of a list
	names    map[string]int // of a map: the place in fields
	fields   []*schema
	required uint64 // of a map: a bit for each field that must come
}

// fieldError says which field is at fault, and why. An empty code is CodeBadMessage.
type fieldError struct {
	path, problem, code string
}

func (e *fieldError) Error() string {
	if e.path == "" {
		return "the message " + e.problem
	}
	return e.path + " " + e.problem
}

// in names the map or list that the field at fault lies in.
func (e *fieldError) in(outer string) *fieldError {
	if e.path == "" || e.path[0] == '[' {
		return &fieldError{outer + e.path, e.problem, e.code}
	}
	return &fieldError{outer + "." + e.path, e.problem, e.code}
}

// schemaOf makes the schema of a Go type. It panics on a type that the protocol
// does not use: that is a mistake in messages.go.
func schemaOf(t reflect.Type) *schema {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return &schema{want: "a string", kind: kindStr}
	case reflect.Bool:
		return &schema{want: "a boolean", kind: kindBool}
	case reflect.Float64:
		return &schema{want: "a number", kind: kindFloat}
	case reflect.Int32:
		return &schema{want: "a whole number of 32 bits", kind: kindInt, min: math.MinInt32, max: math.MaxInt32}
	case reflect.Int, reflect.Int64:
		return &schema{want: "a whole number", kind: kindInt, min: math.MinInt64, max: math.MaxInt64}
	case reflect.Uint64:
		return &schema{want: "a whole number of 0 and more", kind: kindInt, max: math.MaxUint64}
	case reflect.Slice:
		return &schema{want: "a list", kind: kindArray, elem: schemaOf(t.Elem())}
	case reflect.Struct:
		return structSchema(t)
	}
	panic(fmt.Sprintf("protocol: no schema for %v", t))
}

// structSchema makes the schema of a map. A field marked omitempty may be
// missing; one that is added to a message later has to be, since peers older
// than the field do not send it.
func structSchema(t reflect.Type) *schema {
	s := &schema{want: "a map", kind: kindMap, names: map[string]int{}}
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("msgpack"), ",")
		f := schemaOf(t.Field(i).Type)
		f.name, f.optional = name, opts == "omitempty"
		s.names[name] = i
		s.fields = append(s.fields, f)
		if !f.optional {
			s.required |= 1 << i
		}
	}
	return s
}

// walker reads the items of a body that Scan has passed.
type walker struct {
	b []byte
}

func (w *walker) next() item {
	it, err := readItem(w.b)
	if err != nil {
		panic(err) // Scan has read this item
	}
	w.b = w.b[it.size:]
	return it
}

// str returns the bytes of the string whose head was read last.
func (w *walker) str(it item) []byte {
	s := w.b[:it.n]
	w.b = w.b[it.n:]
	return s
}

// skip passes over one item and all that belongs to it.
func (w *walker) skip() {
	for todo := 1; todo > 0; todo-- {
		if _, size := readWhole(w.b); size > 0 { // what long lists are of
			w.b = w.b[size:]
			continue
		}
		it := w.next()
		w.b = w.b[it.body():]
		todo += it.children()
	}
}

// check reads one item and compares it with s.
func (s *schema) check(w *walker) *fieldError {
	it := w.next()
	switch {
	case it.kind == kindNil && s.optional:
		return nil
	case it.kind == kindNil && s.name != "":
		return &fieldError{problem: "is missing"}
	case !s.fits(it):
		return &fieldError{problem: fmt.Sprintf("is %s: it must be %s", it.kind, s.want)}
	case it.kind == kindArray:
		return s.checkList(w, it.n)
	case it.kind == kindMap:
		return s.checkMap(w, it.n)
	}
	w.b = w.b[it.body():]
	return nil
}

// fits compares the item alone, without what belongs to it. A whole number is
// taken where a float is wanted, since encoders write 1.0 as 1.
func (s *schema) fits(it item) bool {
	switch s.kind {
	case kindInt:
		return it.kind == kindUint && it.num <= s.max || it.kind == kindInt && int64(it.num) >= s.min
	case kindFloat:
		return it.kind == kindFloat || it.kind == kindInt || it.kind == kindUint && it.num <= math.MaxInt64
	}
	return it.kind == s.kind
}

func (s *schema) checkList(w *walker, n int) *fieldError {
	if n > MaxElements {
		return &fieldError{problem: fmt.Sprintf("has %d elements: it may have %d", n, MaxElements), code: CodeBadRequest}
	}
	for i := range n {
		if num, size := readWhole(w.b); size > 0 && s.elem.kind == kindInt && num <= s.elem.max { // what long lists are of
			w.b = w.b[size:]
			continue
		}
		if e := s.elem.check(w); e != nil {
			return e.in(fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

// checkMap checks the fields that s knows; others are passed over. A field that
// comes twice is refused: readers would disagree about which one counts.
func (s *schema) checkMap(w *walker, n int) *fieldError {
	var seen uint64
	for range n {
		key := w.str(w.next())
		i, known := s.names[string(key)]
		if !known {
			w.skip()
			continue
		}
		if seen&(1<<i) != 0 {
			return &fieldError{path: string(key), problem: "comes twice"}
		}
		seen |= 1 << i
		if e := s.fields[i].check(w); e != nil {
			return e.in(string(key))
		}
	}
	return s.checkRequired(seen)
}

func (s *schema) checkRequired(seen uint64) *fieldError {
	missing := s.required &^ seen
	if missing == 0 {
		return nil
	}
	return &fieldError{path: s.fields[bits.TrailingZeros64(missing)].name, problem: "is missing"}
}
