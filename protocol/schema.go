package protocol

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"
)

// A schema describes the valid form of an item on the wire. It is derived from a
// message's Go struct, which stays the only definition. It is checked before msgpack
// decodes, because msgpack coerces: v5.4.1 turns a negative number into a uint64, any
// number into a shorter one, binary into a string, and nil into anything.
type schema struct {
	name     string // of the field, if it is a field
	want     string // the valid form, for error messages
	kind     kind   // kindInt: any whole number
	min      int64  // for whole numbers
	max      uint64
	optional bool
	elem     *schema        // of a list
	words    bool           // of kindInt: a string is valid too
	anyKeys  bool           // a map with any keys, whose values are those of JSON
	names    map[string]int // for maps: index in fields
	fields   []*schema
	required uint64 // for maps: a bit for each required field
}

// fieldError names an invalid field and its problem. An empty code means CodeBadMessage.
type fieldError struct {
	path, problem, code string
}

func (e *fieldError) Error() string {
	if e.path == "" {
		return "the message " + e.problem
	}
	return e.path + " " + e.problem
}

// in adds the name of the map or list that contains the field.
func (e *fieldError) in(outer string) *fieldError {
	if e.path == "" || e.path[0] == '[' {
		return &fieldError{outer + e.path, e.problem, e.code}
	}
	return &fieldError{outer + "." + e.path, e.problem, e.code}
}

// schemaOf returns the schema of a Go type. It panics on types that the protocol does not
// use, which would be a mistake in messages.go.
func schemaOf(t reflect.Type) *schema {
	if t == reflect.TypeFor[Draft]() {
		return &schema{want: "a string or a whole number", kind: kindInt, min: math.MinInt64, max: math.MaxInt64,
			words: true}
	}
	if t == reflect.TypeFor[Vector]() {
		return &schema{want: "binary", kind: kindBin}
	}
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
	case reflect.Map:
		return &schema{want: "a map", kind: kindMap, anyKeys: true}
	case reflect.Struct:
		return structSchema(t)
	}
	panic(fmt.Sprintf("protocol: no schema for %v", t))
}

// structSchema returns the schema of a map. Fields marked omitempty are optional. A field
// added to an existing message must be optional, since older peers do not send it.
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

// str returns the bytes of the string whose head was just read.
func (w *walker) str(it item) []byte {
	s := w.b[:it.n]
	w.b = w.b[it.n:]
	return s
}

// skip passes over one item with all its children.
func (w *walker) skip() {
	for todo := 1; todo > 0; todo-- {
		if items, size := wholeNumbers(w.b, todo); items > 0 { // fast path for long lists
			w.b = w.b[size:]
			todo -= items - 1
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
	case it.kind == kindMap && s.anyKeys:
		return checkVariables(w, it.n)
	case it.kind == kindMap:
		return s.checkMap(w, it.n)
	}
	w.b = w.b[it.body():]
	return nil
}

// fits compares the item's head with s. A whole number is valid for a float, since
// encoders write 1.0 as 1.
func (s *schema) fits(it item) bool {
	switch s.kind {
	case kindInt:
		return it.kind == kindUint && it.num <= s.max || it.kind == kindInt && int64(it.num) >= s.min ||
			it.kind == kindStr && s.words
	case kindFloat:
		return it.kind == kindFloat || it.kind == kindInt || it.kind == kindUint && it.num <= math.MaxInt64
	}
	return it.kind == s.kind
}

func (s *schema) checkList(w *walker, n int) *fieldError {
	if n > MaxElements {
		return &fieldError{
			problem: fmt.Sprintf("has %d elements: it may have %d", n, MaxElements), code: CodeBadRequest,
		}
	}
	for i := 0; i < n; i++ {
		if s.elem.kind == kindInt { // fast paths for long lists
			if run := numbersOf2(w.b, n-i); run > 0 && s.elem.max >= math.MaxUint16 {
				i, w.b = i+run-1, w.b[3*run:]
				continue
			}
			if num, size := readWhole(w.b); size > 0 && num <= s.elem.max {
				w.b = w.b[size:]
				continue
			}
		}
		if e := s.elem.check(w); e != nil {
			return e.in(fmt.Sprintf("[%d]", i))
		}
	}
	return nil
}

// checkMap checks the fields that s knows and skips others. A repeated field is refused,
// since readers would disagree about which value counts.
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
