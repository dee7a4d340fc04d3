package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	out         strings.Builder
	ascii       bool
	lines       bool   // each item on a line of its own
	indent      string // of a level, with lines
	comma       string
	colon       string
	sortKeys    bool
	unsupported string // the kind of a value that JSON cannot represent, or ""
}

// toJSON is the filter tojson of transformers: json.dumps with the defaults
// ensure_ascii=False, indent=None, separators=None, sort_keys=False.
func toJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	w := jsonWriter{comma: ", ", colon: ": "}
	arguments := map[string]*exec.Value{}
	for i, name := range []string{"ensure_ascii", "indent", "separators", "sort_keys"} {
		if i < len(params.Args) {
			arguments[name] = params.Args[i]
		}
		if v, ok := params.KwArgs[name]; ok {
			arguments[name] = v
		}
	}
	if v, ok := arguments["ensure_ascii"]; ok {
		w.ascii = v.IsTrue()
	}
	if v, ok := arguments["indent"]; ok && !v.IsNil() && !isNone(v) {
		w.lines, w.comma, w.indent = true, ",", v.String()
		if v.IsInteger() {
			w.indent = strings.Repeat(" ", max(0, v.Integer()))
		}
	}
	if v, ok := arguments["separators"]; ok && v.IsList() && v.Len() == 2 {
		w.comma, w.colon = v.Index(0).String(), v.Index(1).String()
	}
	if v, ok := arguments["sort_keys"]; ok {
		w.sortKeys = v.IsTrue()
	}
	w.value(in, "\n")
	if w.unsupported != "" {
		return exec.AsValue(fmt.Errorf("tojson: %s is not JSON serializable", w.unsupported))
	}
	return exec.AsValue(w.out.String())
}

// value writes v. newline is the newline and indentation of the list or dict that holds v.
func (w *jsonWriter) value(v *exec.Value, newline string) {
	switch {
	case isNone(v):
		w.out.WriteString("null")
	case v.IsString():
		w.string(v.String())
	case v.IsBool():
		w.out.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		w.out.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		w.out.WriteString(pythonFloat(v.Float()))
	case v.IsDict():
		w.dict(pairsOf(v), newline)
	case v.IsList():
		w.list(v, newline)
	default:
		w.unsupported = "undefined or a function"
	}
}

// items writes n items between brackets. item writes one.
func (w *jsonWriter) items(open, end string, n int, newline string, item func(i int, newline string)) {
	w.out.WriteString(open)
	inner := newline + w.indent
	for i := range n {
		if i > 0 {
			w.out.WriteString(w.comma)
		}
		if w.lines {
			w.out.WriteString(inner)
		}
		item(i, inner)
	}
	if w.lines && n > 0 {
		w.out.WriteString(newline)
	}
	w.out.WriteString(end)
}

func (w *jsonWriter) list(v *exec.Value, newline string) {
	w.items("[", "]", v.Len(), newline, func(i int, newline string) { w.value(v.Index(i), newline) })
}

func (w *jsonWriter) dict(pairs []*exec.Pair, newline string) {
	if w.sortKeys {
		slices.SortStableFunc(pairs, func(a, b *exec.Pair) int {
			return strings.Compare(a.Key.String(), b.Key.String())
		})
	}
	w.items("{", "}", len(pairs), newline, func(i int, newline string) {
		w.string(jsonKey(pairs[i].Key))
		w.out.WriteString(w.colon)
		w.value(pairs[i].Value, newline)
	})
}

func jsonKey(v *exec.Value) string {
	switch {
	case isNone(v):
		return "null"
	case v.IsBool():
		return strconv.FormatBool(v.Bool())
	case v.IsFloat():
		return pythonFloat(v.Float())
	}
	return v.String()
}

func (w *jsonWriter) string(s string) {
	w.out.WriteByte('"')
	for _, r := range s {
		switch at := strings.IndexRune("\"\\\n\r\t\b\f", r); {
		case at >= 0:
			w.out.WriteString(`\` + `"\nrtbf`[at:at+1])
		case r < ' ' || w.ascii && r > 0x7f && r < 0x10000:
			fmt.Fprintf(&w.out, `\u%04x`, r)
		case w.ascii && r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&w.out, `\u%04x\u%04x`, high, low)
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}

// pythonFloat returns Python's repr of a float: the shortest digits, with an exponent if it
// is below -4 or at least 16.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if size := math.Abs(f); f != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
