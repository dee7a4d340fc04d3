package protocol

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
)

// Variables are values for a model's chat template, by name. A value is nil, a bool, an int,
// int64, uint64, float64 or string, or a []any or map[string]any of such values. A decoded
// number is an int64, uint64 or float64.
type Variables map[string]any

// DecodeMsgpack reads a map that the schema has checked.
func (v *Variables) DecodeMsgpack(dec *msgpack.Decoder) (err error) {
	dec.UseLooseInterfaceDecoding(true)
	defer dec.UseLooseInterfaceDecoding(false)
	*v, err = dec.DecodeMap()
	return err
}

// checkVariables checks a map of n pairs whose head was just read, with any fields: its size, and
// the items in it. Values that JSON lacks and repeated keys are refused.
func checkVariables(w *walker, n int) *fieldError {
	end := walker{w.b}
	for range 2 * n {
		end.skip()
	}
	if size := len(w.b) - len(end.b); size > MaxVariableBytes {
		return &fieldError{
			problem: fmt.Sprintf("has %d bytes: it may have %d", size, MaxVariableBytes), code: CodeBadRequest,
		}
	}
	return checkPairs(w, n)
}

// checkPairs checks a map of any fields at any depth. Scan bounds the recursion.
func checkPairs(w *walker, n int) *fieldError {
	seen := make(map[string]bool, n)
	for range n {
		key := string(w.str(w.next()))
		if seen[key] {
			return (&fieldError{problem: "comes twice"}).in(inBrief(key))
		}
		seen[key] = true
		if e := checkValue(w); e != nil {
			return e.in(inBrief(key))
		}
	}
	return nil
}

// inBrief returns a key as errors name it.
func inBrief(key string) string { return fmt.Sprintf("%.64s", key) }

func checkValue(w *walker) *fieldError {
	it := w.next()
	switch it.kind {
	case kindBin:
		return &fieldError{problem: "is binary: it must be a value that JSON has"}
	case kindMap:
		return checkPairs(w, it.n)
	case kindArray: // an error names the map's key, not the element
		for range it.n {
			if e := checkValue(w); e != nil {
				return e
			}
		}
	}
	w.b = w.b[it.body():]
	return nil
}

// variableName is the form of a name, as templates can read it.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxValueDepth is the depth of nested maps and lists in a value. A frame has two more levels:
// the message and its field template.
const maxValueDepth = MaxDepth - 2

// Validate checks number, names, types and depth. It does not know the names that belong to
// templates: the generator refuses these. The error's code is CodeBadRequest.
func (v Variables) Validate() *Error {
	if len(v) > MaxVariables {
		return Errorf(CodeBadRequest, "leave some out", "template has %d variables: it may have %d", len(v), MaxVariables)
	}
	for name, value := range v {
		if !variableName.MatchString(name) {
			return Errorf(CodeBadRequest, "use letters, digits and _, and no digit at the beginning",
				"template has the name %.64q, which no variable can have", name)
		}
		if e := checkGoValue(value, maxValueDepth); e != "" {
			return Errorf(CodeBadRequest, "give a value that JSON has", "template.%.64s %s", name, e)
		}
	}
	return nil
}

// checkGoValue returns the fault of a value in which at most depth maps and lists are nested,
// or "". It refuses what Scan would refuse, and so end the connection.
func checkGoValue(value any, depth int) (fault string) {
	switch v := value.(type) {
	case nil, bool, int, int64, uint64:
		return ""
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("has the number %v", v)
		}
		return ""
	case string:
		if !utf8.ValidString(v) {
			return "has a text that is not valid UTF-8"
		}
		return ""
	}
	if depth == 0 {
		return fmt.Sprintf("is nested more than %d deep", maxValueDepth)
	}
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			if fault = checkGoValue(element, depth-1); fault != "" {
				return fault
			}
		}
		return ""
	case map[string]any:
		for key, element := range v {
			if fault = cmp.Or(checkGoValue(key, 0), checkGoValue(element, depth-1)); fault != "" {
				return fault
			}
		}
		return ""
	}
	return fmt.Sprintf("has a value of the Go type %T", value)
}
