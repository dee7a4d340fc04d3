package calls

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// elementTypes are those of the tools get and put.
var elementTypes = TypesOf([]Tool{{Name: "get", Parameters: json.RawMessage(`{"properties": {
	"s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}, "l": {"type": "array"},
	"o": {"type": "object"}, "x": {"type": ["string", "null"]}, "free": {}}}`)}, {Name: "put"}})

// parameter is a name and a value as a model writes them.
type parameter struct{ name, value string }

// written returns a call of get in the forms of Coder and GLM.
func written(parameters ...parameter) (coder, glm string) {
	coder, glm = "<tool_call>\n<function=get>\n", "<tool_call>get\n"
	for _, p := range parameters {
		coder += "<parameter=" + p.name + ">\n" + p.value + "\n</parameter>\n"
		glm += "<arg_key>" + p.name + "</arg_key>\n<arg_value>" + p.value + "</arg_value>\n"
	}
	return coder + "</function>\n</tool_call>", glm + "</tool_call>"
}

// wantBoth compares what is found of a call in both forms.
func wantBoth(t *testing.T, arguments string, parameters ...parameter) {
	t.Helper()
	inCoder, inGLM := written(parameters...)
	want(t, coder, "Yes.\n"+inCoder+"\nSo.", "", "Yes.So.", "0 get "+arguments)
	want(t, glm, "Yes.\n"+inGLM+"\nSo.", "", "Yes.So.", "0 get "+arguments)
	if !json.Valid([]byte(arguments)) {
		t.Errorf("%s is no JSON", arguments)
	}
}

// Parameters that are elements become JSON: what the schema calls a string is quoted as it is, and of the rest what is
// JSON stays.
func TestElements(t *testing.T) {
	wantBoth(t, `{}`)
	wantBoth(t, `{"s": "x"}`, parameter{"s", "x"})
	wantBoth(t, `{"s": "12", "n": 12}`, parameter{"s", "12"}, parameter{"n", "12"})
	wantBoth(t, `{"s": "a \"b\"\n\n\\c\t</p <é\u0001>"}`, parameter{"s", "a \"b\"\n\n\\c\t</p <é\x01>"})
	wantBoth(t, `{"s": "\n\n"}`, parameter{"s", "\n\n"})
	wantBoth(t, `{"s": ""}`, parameter{"s", ""})
	wantBoth(t, `{"s": "<parameter=n></function></arg_key></tool_call"}`,
		parameter{"s", "<parameter=n></function></arg_key></tool_call"})
	wantBoth(t, `{"b": true, "l": [1, "x"], "o": {"a": {}}}`,
		parameter{"b", "True"}, parameter{"l", `[1, "x"]`}, parameter{"o", ` {"a": {}}`})
	wantBoth(t, `{"b": "maybe", "n": "x < 1", "o": "None"}`,
		parameter{"b", "maybe"}, parameter{"n", "x < 1"}, parameter{"o", "None"})
	wantBoth(t, `{"x": null, "x": "None", "x": "12"}`, parameter{"x", "null"}, parameter{"x", "None"}, parameter{"x", "12"})
	wantBoth(t, `{"free": 1.5, "other": "a", "free": "true story"}`,
		parameter{"free", "1.5"}, parameter{"other", "a"}, parameter{"free", "true story"})
	long := strings.Repeat(`{"a": "<"}, `, maxHead/12)
	wantBoth(t, `{"l": [`+long+`1], "free": "[`+strings.ReplaceAll(long, `"`, `\"`)+`1]"}`,
		parameter{"l", "[" + long + "1]"}, parameter{"free", "[" + long + "1]"})

	two, _ := written(parameter{"n", "1"})
	want(t, coder, two+"\n"+strings.ReplaceAll(two, "get", "put"), "", "", `0 get {"n": 1}`, `1 put {"n": 1}`)
	want(t, coder, "<tool_call><function=get><parameter=s>a</parameter></function></tool_call>", "", "", `0 get {"s": "a"}`)
	want(t, glm, "<tool_call>get<arg_key>s</arg_key><arg_value>\na\n</arg_value></tool_call>", "", "",
		`0 get {"s": "\na\n"}`)
	want(t, glm, "<tool_call>get</tool_call><tool_call> put\n</tool_call>", "", "", "0 get {}", "1 put {}")
}

// What only looks like a call is text up to the first parameter, or the end of a call without any.
func TestTextThatLooksLikeElements(t *testing.T) {
	for _, text := range []string{
		"<tool_call>\n<function=get>\n", "<tool_call>\n<function=other>\n<parameter=s>", "<tool_call>\n<function=get>\n<parameter=",
		"<tool_call>\n<function=get", "<function=get></function>", `<tool_call>{"name": "get", "arguments": {}}</tool_call>`,
		"<tool_call><function=get>x", "<tool_call><function=get></tool_call>", "<tool_call><function=get><parameter=s\n>",
		"<tool_call><function=get><parameter=" + strings.Repeat("x", maxName+1), "<tool_call>" + strings.Repeat(" ", maxHead),
	} {
		want(t, coder, text, "", text)
	}
	for _, text := range []string{
		"<tool_call>get\n", "<tool_call>get\n<arg_key>s</arg_key>\n<arg_val", "<tool_call>other</tool_call>",
		"<tool_call>other\n<arg_key>", "<tool_call></tool_call>", "<tool_call>get\nput</tool_call>", "<tool_call>get<x",
		"<tool_call>get<arg_key>s<arg_value>", "<tool_call>get<arg_key>s</arg_key>x", "<arg_key>s</arg_key>",
	} {
		want(t, glm, text, "", text)
	}
	want(t, coder, "<tool_call>\n<tool_call><function=get></function>", "", "<tool_call>\n", "0 get {}")
	want(t, glm, "<tool_call>no<tool_call>get</tool_call>", "", "<tool_call>no", "0 get {}")
}

// A call that has begun stays one: what has no place in it ends it, and in a value that does not end it is not
// complete.
func TestBrokenElements(t *testing.T) {
	inCoder, inGLM := written(parameter{"s", "a"})
	inCoder, inGLM = strings.Split(inCoder, "</function>")[0], strings.Split(inGLM, "</tool_call>")[0]
	for _, c := range []struct {
		o          Options
		text, then string
		calls      []string
		complete   int
	}{
		{coder, inCoder + "x", "x", []string{`0 get {"s": "a"}`}, 1}, {glm, inGLM + "<arg", "", []string{`0 get {"s": "a"`}, 0},
		{glm, inGLM + "</arg", "</arg", []string{`0 get {"s": "a"}`}, 1}, {glm, inGLM + "<arg_kex", "<arg_kex", []string{`0 get {"s": "a"}`}, 1},
		{coder, inCoder + "<parameter=n>12", "", []string{`0 get {"s": "a", "n": `}, 0},
		{glm, inGLM + "<arg_key>s</arg_key><arg_value>b <", "", []string{`0 get {"s": "a", "s": "b `}, 0},
		{coder, inCoder + "<tool_call><function=put></function>", "", []string{`0 get {"s": "a"}`, "1 put {}"}, 2},
	} {
		want(t, c.o, c.text, "", c.then, c.calls...)
		if got := read(t, c.o, c.text, 3); got.complete != c.complete {
			t.Errorf("%s: %d complete calls", c.text, got.complete)
		}
	}
	for _, o := range []Options{coder, glm} {
		o.Single = true
		inCoder, inGLM := written(parameter{"n", "1"})
		want(t, o, map[Family]string{Coder: inCoder, GLM: inGLM}[o.Form.Family]+" a", "", "", `0 get {"n": 1}`)
	}
}

// Tags of GLM may be control tokens, and then nothing else is a tag.
func TestControlTokensOfElements(t *testing.T) {
	o := glm
	o.Control = o.Form.Markers()
	mark := func(s string) string { return "\x01" + s + "\x02" }
	marked := func(text string) string {
		for _, m := range o.Control {
			text = strings.ReplaceAll(text, m, mark(m))
		}
		return text
	}
	_, text := written(parameter{"s", "a"}, parameter{"n", "12"})
	want(t, o, "a"+marked(text)+"b", "", "ab", `0 get {"s": "a", "n": 12}`)
	want(t, o, text, "", text)
	long := "[" + strings.Repeat("1, ", maxHead/2) + "1]"
	want(t, o, marked("<tool_call>get<arg_key>l</arg_key><arg_value>"+long+"</arg_value></tool_call>"), "", "",
		`0 get {"l": `+long+`}`)
	want(t, o, marked("<tool_call>get</tool_call><tool_call>no</tool_call>"), "", "no", "0 get {}")
	want(t, o, marked("<tool_call>get<arg_value>x"), "", "getx")
	want(t, o, marked("<tool_call>get<arg_key>s</arg_key><arg_value>")+"</arg_value>"+marked("<arg_key></arg_value><tool_call>get</tool_call>"),
		"", "", `0 get {"s": "</arg_value>"}`, "1 get {}")
	want(t, o, marked("<tool_call>get<arg_key>n</arg_key><arg_value>1</arg_value></arg_key>")+"b", "", "b", `0 get {"n": 1}`)
}

// What is undecided of a call is bounded, except for its arguments.
func TestBoundsOfElements(t *testing.T) {
	for text, most := range map[string]int{
		"<tool_call><function=get>" + strings.Repeat(" ", 2*maxHead):                                      maxSpace,
		"<tool_call><function=get><parameter=s>\n":                                                        0,
		"<tool_call><function=get><parameter=s>\na\n</para":                                               len("\n</para"),
		"<tool_call><function=get><parameter=o>\n{":                                                       1,
		"<tool_call><function=get><parameter=o>\n{" + strings.Repeat("x", 2*maxHead):                      0,
		"<tool_call><function=get><parameter=s>\na\n</parameter>" + strings.Repeat("\n", 2*maxHead):       0,
		"<tool_call><function=get><parameter=s>a</parameter><parameter=" + strings.Repeat("x", 2*maxName): 0,
	} {
		r := NewReader(coder)
		r.options.ID = func(int) string { return "" }
		if r.Push(text); len(text)-r.Decided() > most {
			t.Errorf("%.80s: %d bytes are undecided", text, len(text)-r.Decided())
		}
	}
}

// The types of a parameter are those that its schema names, or unknown.
func TestTypesOf(t *testing.T) {
	for schema, want := range map[string]Types{
		`{}`: 0, `{"type": "string"}`: stringType, `{"type": ["integer", "null"]}`: numberType | nullType,
		`{"enum": ["a", 1, true]}`: stringType | numberType | booleanType, `{"type": "any"}`: 0, `true`: 0, `{"$ref": "#/x"}`: 0,
		`{"anyOf": [{"type": "array"}, {"type": "object"}]}`: arrayType | objectType, `{"oneOf": [{"type": "array"}, {}]}`: 0,
	} {
		got := TypesOf([]Tool{{Name: "f", Parameters: json.RawMessage(`{"properties": {"a": ` + schema + `}}`)}})
		if !reflect.DeepEqual(got, map[string]map[string]Types{"f": {"a": want}}) {
			t.Errorf("%s: %v, want %b", schema, got, want)
		}
	}
	if got := TypesOf([]Tool{{Name: "f"}, {Name: "g", Parameters: json.RawMessage(`[]`)}}); !slices.Equal(
		slices.Sorted(maps.Keys(got)), []string{"f", "g"}) {
		t.Errorf("%v", got)
	}
}
