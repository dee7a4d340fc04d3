package protocol

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// withTemplate returns the body of a conversation whose template is the item in value.
func withTemplate(value string) []byte {
	message := string(pairs("role", text("user"), "content", text("a")))
	return pairs("type", text("generate"), "id", "\x07", "messages", "\x91"+message, "template", value)
}

// TestVariables: each value of JSON arrives as one of few Go types.
func TestVariables(t *testing.T) {
	for value, want := range map[string]any{
		"\xc0": nil, "\xc2": false, "\x05": int64(5), "\xd1\xff\x00": int64(-256), "\xe0": int64(-32),
		"\xcf\xff\xff\xff\xff\xff\xff\xff\xff": uint64(math.MaxUint64), "\xca\x3f\x00\x00\x00": 0.5,
		text("é"): "é", "\x92\x01\x90": []any{int64(1), []any{}},
		"\x81\xa3a b\x80": map[string]any{"a b": map[string]any{}},
	} {
		msg, err := DecodeRequest(withTemplate(string(pairs("x", value))))
		if err != nil {
			t.Errorf("%x: %v", value, err)
			continue
		}
		if g := msg.(*Generate); !reflect.DeepEqual(g.Template, Variables{"x": want}) || g.Validate(testLimits) != nil {
			t.Errorf("%x: %#v, %v, want %#v", value, g.Template, g.Validate(testLimits), want)
		}
	}
}

// TestHostileVariables: each is refused before msgpack decodes it, which alone would take it.
func TestHostileVariables(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("\x91", n) + "\xc0" }
	for _, c := range []struct{ value, code, want string }{
		{pair("x", "\xc4\x01a"), CodeBadMessage, "template.x is binary"},
		{pair("x", "\x92\x01\x81\xa1y\xc4\x01a"), CodeBadMessage, "template.x.y is binary"},
		{"\x82\xa1x\x01\xa1x\x02", CodeBadMessage, "template.x comes twice"},
		{pair("x", "\x91\x82\xa1y\x01\xa1y\x01"), CodeBadMessage, "template.x.y comes twice"},
		{pair("x", text(strings.Repeat("a", MaxVariableBytes-4))), CodeBadRequest, "has 16385 bytes: it may have 16384"},
		{pair(strings.Repeat("k", 100), "\xc4\x01a"), CodeBadMessage, "." + strings.Repeat("k", 64) + " is binary"},
		{pair("x", deep(maxValueDepth+1)), CodeBadFrame, "more than 16 levels"},
		{pair("x", "\xd4\x01\x00"), CodeBadFrame, "an extension type"},
		{pair("x", "\xa1\xff"), CodeBadFrame, "not UTF-8"},
		{"\x81\x01\x01", CodeBadFrame, "as the key of a map"},
		{"\xdf\xff\xff\xff\xff", CodeBadFrame, "declared with"},
		{pair("x", "\xdd\xff\xff\xff\xff"), CodeBadFrame, "declared with"},
	} {
		_, err := DecodeRequest(withTemplate(c.value))
		if code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40x: %v, want %s %s", c.value, err, c.code, c.want)
		}
		if c.code == CodeBadFrame {
			continue // TestHostileInputWithoutScan has their effect
		}
		if err := msgpack.Unmarshal(withTemplate(c.value), new(Generate)); err != nil {
			t.Errorf("%.40x: msgpack alone refuses it: %v; the case tests nothing", c.value, err)
		}
	}
	for _, value := range []string{
		pair("x", text(strings.Repeat("a", MaxVariableBytes-5))), pair("x", deep(maxValueDepth)), "\xc0", "\x80",
	} {
		if _, err := DecodeRequest(withTemplate(value)); err != nil {
			t.Errorf("%.40x: %v", value, err)
		}
	}
}

func pair(name, value string) string { return string(pairs(name, value)) }

// nestedList returns n lists, each in the next.
func nestedList(n int) (v any) {
	for range n {
		v = []any{v}
	}
	return v
}

// TestVariablesOfAProgram: what Scan would refuse, so that the connection ended, is refused with
// the variable's name.
func TestVariablesOfAProgram(t *testing.T) {
	many := func(n int) Variables {
		v := Variables{}
		for i := range n {
			v["x"+strings.Repeat("y", i)] = i
		}
		return v
	}
	for want, v := range map[string]Variables{
		"template has 33 variables: it may have 32": many(MaxVariables + 1),
		`the name ""`:                                  {"": 1},
		`the name "1x"`:                                {"1x": 1},
		`the name "a b"`:                               {"a b": 1},
		`the name "é"`:                                 {"é": 1},
		`the name "x\n"`:                               {"x\n": 1},
		"template.x is nested more than 14 deep":       {"x": nestedList(maxValueDepth + 1)},
		"template.x has the number NaN":                {"x": math.NaN()},
		"template.x has the number +Inf":               {"x": []any{math.Inf(1)}},
		"template.x has a text that is not valid UTF-": {"x": map[string]any{"\xff": 1}},
		"has a value of the Go type time.Time":         {"x": time.Time{}},
		"has a value of the Go type []string":          {"x": []any{[]string{}}},
		"has a value of the Go type []uint8":           {"x": []byte{}},
	} {
		if e := v.Validate(); e == nil || e.Code != CodeBadRequest || !strings.Contains(e.Message, want) {
			t.Errorf("%v, want %s", e, want)
		}
	}
	for _, v := range []Variables{nil, {}, many(MaxVariables), {"_X1": nestedList(maxValueDepth)},
		{"x": []any{nil, true, 1, int64(1), uint64(1), 1.5, "é", map[string]any{"a b": ""}}}} {
		if e := v.Validate(); e != nil {
			t.Errorf("%v: %v", v, e)
		}
		frame, err := AppendFrame(nil, &Generate{ID: 1, Messages: []Message{{Role: "u"}}, Template: v})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRequest(frame[headerBytes:]); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// TestVariablesHaveOneForm: the order of a Go map leaves no trace.
func TestVariablesHaveOneForm(t *testing.T) {
	var first []byte
	for range 20 {
		inner := map[string]any{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
		frame, err := AppendFrame(nil, &Generate{Template: Variables{"v": inner, "w": []any{inner}, "x": 1, "y": 2}})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = frame
		}
		if string(frame) != string(first) {
			t.Fatal("the same message has other bytes")
		}
	}
}
