package calls

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// The form of required calls is that of the family, with the markers' control tokens, and with reasoning where the
// model writes some.
func TestRequired(t *testing.T) {
	tools := []Tool{{"a", json.RawMessage(`{"type": "object"}`)}, {Name: `b"`}}
	const think, free = `{"begin":[{"text":"<think>"}],"end":{"text":"</think>"}}`, "null"
	tags := Form{Family: Tagged, Begin: "<think>", End: "</think>"}
	for _, c := range []struct {
		form           Form
		control        map[int32]string
		single, inside bool
		want           string
		drawn          []int32
	}{
		{tags, nil, false, false, `{"think":` + think + `,"begin":null,"calls":[` +
			`{"head":[{"text":"\u003ctool_call\u003e"},{"text":"\n{\"name\": \"a\", \"arguments\": "}],"schema":` +
			`{"type":"object"},` +
			`"tail":[{"text":"}\n"},{"text":"\u003c/tool_call\u003e"}]},` +
			`{"head":[{"text":"\u003ctool_call\u003e"},{"text":"\n{\"name\": \"b\\\"\", \"arguments\": "}],"schema":{},` +
			`"tail":[{"text":"}\n"},{"text":"\u003c/tool_call\u003e"}]}],"between":[{"text":"\n"}],"end":null}`, nil},
		{Form{Family: Tagged}, map[int32]string{7: callBegin}, true, false, `{"think":null,"begin":null,"calls":[` +
			`{"head":[{"token":7},{"text":"\n{\"name\": \"a\", \"arguments\": "}],"schema":{"type":"object"},` +
			`"tail":[{"text":"}\n"},{"text":"\u003c/tool_call\u003e"}]},` +
			`{"head":[{"token":7},{"text":"\n{\"name\": \"b\\\"\", \"arguments\": "}],"schema":{},` +
			`"tail":[{"text":"}\n"},{"text":"\u003c/tool_call\u003e"}]}],"between":null,"end":null}`, []int32{7, 7}},
		{Form{Family: Bare, Begin: "<think>", End: "</think>"}, map[int32]string{3: "</think>"}, false, true,
			`{"think":{"begin":null,"end":{"token":3}},"begin":null,"calls":[` +
				`{"head":[{"text":"{\"name\": \"a\", \"parameters\": "}],"schema":{"type":"object"},"tail":[{"text":"}"}]},` +
				`{"head":[{"text":"{\"name\": \"b\\\"\", \"parameters\": "}],"schema":{},"tail":[{"text":"}"}]}],"between":` +
				`null,"end":null}`, []int32{3}},
		{Form{Family: Mistral, List: true}, map[int32]string{5: toolCalls}, false, false,
			`{"think":null,"begin":[{"token":5},{"text":"["}],"calls":[` +
				`{"head":[{"text":"{\"name\": \"a\", \"arguments\": "}],"schema":{"type":"object"},"tail":[{"text":"}"}]},` +
				`{"head":[{"text":"{\"name\": \"b\\\"\", \"arguments\": "}],"schema":{},"tail":[{"text":"}"}]}],` +
				`"between":[{"text":", "}],"end":[{"text":"]"}]}`, []int32{5}},
		{Form{Family: Piped, List: true}, map[int32]string{5: pipeBegin}, true, false,
			`{"think":null,"begin":[{"token":5},{"text":"["}],"calls":[` +
				`{"head":[{"text":"{\"name\": \"a\", \"arguments\": "}],"schema":{"type":"object"},"tail":[{"text":"}"}]},` +
				`{"head":[{"text":"{\"name\": \"b\\\"\", \"arguments\": "}],"schema":{},"tail":[{"text":"}"}]}],` +
				`"between":null,"end":[{"text":"]"}]}`, []int32{5}},
		{Form{Family: Lined}, nil, false, false, `{"think":null,"begin":null,"calls":[` +
			`{"head":[{"text":"a\n"}],"schema":{"type":"object"},"tail":null},` +
			`{"head":[{"text":"b\"\n"}],"schema":{},"tail":null}],"between":null,"end":null}`, nil},
		{Form{Family: Mistral}, map[int32]string{5: toolCalls, 6: argsMark}, false, false,
			`{"think":null,"begin":null,"calls":[` +
				`{"head":[{"token":5},{"text":"a"},{"token":6}],"schema":{"type":"object"},"tail":null},` +
				`{"head":[{"token":5},{"text":"b\""},{"token":6}],"schema":{},"tail":null}],"between":[],"end":null}`, []int32{5,
				6, 5, 6}},
		{Form{Family: Gemma, Begin: thoughtBegin, End: "<channel|>", Title: thoughtTitle}, map[int32]string{4: pairsBegin,
			5: pairsEnd, 6: thoughtBegin, 7: "<channel|>"}, false, false, `{"think":{"begin":[{"token":6},{"text":"thought\n"}],` +
			`"end":{"token":7}},"begin":null,"calls":[` +
			`{"head":[{"token":4},{"text":"call:a"}],"schema":{"type":"object"},"tail":[{"token":5}]},` +
			`{"head":[{"token":4},{"text":"call:b\""}],"schema":{},"tail":[{"token":5}]}],"between":[],"end":null}`, []int32{7, 6, 4,
			5, 4, 5}},
		{Form{Family: Channelled, Channels: true}, map[int32]string{4: channelMark, 5: constrainMark, 6: messageMark}, false,
			false, `{"think":null,"begin":null,"calls":[` +
				`{"head":[{"token":4},{"text":"commentary to=functions.a "},{"token":5},{"text":"json"},{"token":6}],` +
				`"schema":{"type":"object"},"tail":null},` +
				`{"head":[{"token":4},{"text":"commentary to=functions.b\" "},{"token":5},{"text":"json"},{"token":6}],` +
				`"schema":{},"tail":null}],"between":null,"end":null}`, []int32{4, 5, 6, 4, 5, 6}},
	} {
		r, err := NewRequired(c.form, c.control, tools, c.single, c.inside)
		if err != nil {
			t.Fatal(err)
		}
		text, drawn := r.Text()
		var got, want any
		if json.Unmarshal([]byte(text), &got) != nil || json.Unmarshal([]byte(c.want), &want) != nil ||
			!slices.Equal(drawn, c.drawn) {
			t.Fatalf("%s, %d", text, drawn)
		}
		a, _ := json.Marshal(got)
		if b, _ := json.Marshal(want); string(a) != string(b) {
			t.Errorf("%+v:\n%s, wants\n%s", c.form, a, b)
		}
	}
	for family, want := range map[Family]error{None: ErrNoForm, Coder: ErrElements, GLM: ErrElements} {
		if _, err := NewRequired(Form{Family: family, Tools: true}, nil, tools, false, false); !errors.Is(err, want) {
			t.Error(err)
		}
	}
}

// A template's text shows the form of calls and reasoning.
func TestFormOf(t *testing.T) {
	for template, want := range map[string]Form{
		"{{ messages }}": {},
		`{{ tools }}<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>`: {Family: Tagged,
			Tools: true},
		`{{ tools }}<tool_call><function=f><parameter=a></tool_call> "arguments" <think></think>`: {Family: Coder,
			Tools: true, Begin: "<think>", End: "</think>"},
		`{{ tools }}<tool_call>f<arg_key>a</arg_key><arg_value>b arguments`: {Family: GLM, Tools: true},
		`{{ tools }}<tool_call>f<arg_key>a</arg_key> arguments`:             {Tools: true},
		`{{ tools }}<tool_call><function=f>{}</function> arguments`:         {Tools: true},
		`{{ tools }} Respond in the format {"name": function name, "parameters": dictionary}`: {Family: Bare,
			Tools: true},
		`{{ tools }} '<|python_tag|>' '"parameters": '`: {Family: Bare,
			Tools: true},
		"{{ tools }}[TOOL_CALLS] [{{ tool_call.function|tojson }}]": {Family: Mistral,
			Tools: true, List: true},
		"{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}[THINK][/THINK]": {
			Family: Mistral, Tools: true, Begin: "[THINK]", End: "[/THINK]"},
		"{{ tools }}<｜tool▁calls▁begin｜><｜tool▁sep｜>{": {Family: DeepSeek, Tools: true},
		"{{ tools }}<｜tool▁calls▁begin｜><｜tool▁sep｜>```json</think>": {Family: DeepSeek, Tools: true, Fenced: true,
			Begin: "<think>", End: "</think>"},
		"{{ tools }}'After <|tool_call|> comes a list'":       {Family: Piped, Tools: true, List: true},
		"'<|tool|>' + m['tools'] + '<|/tool|>'":               {Family: Piped, Tools: true, List: true},
		"{{ tools }}<|tool|> <|python_tag|> \"parameters\": ": {Family: Bare, Tools: true},
		"{{ tools }} 'observation' {{ m.metadata }}":          {Family: Lined, Tools: true},
		"{{ tools }} 'observation' 'tool' {{ m.metadata }}":   {Tools: true},
		"{{ tools }} {{ m.metadata }}":                        {Tools: true},
		"<tool_call> arguments":                               {},
		"{{ content.split('</seed:think>') }}":                {Begin: "<seed:think>", End: "</seed:think>"},
	} {
		if got := FormOf(template); got != want {
			t.Errorf("%s: %+v, wants %+v", template, got, want)
		}
	}
}

// A name that the family's form cannot write is refused, since its call would not be found.
func TestRequiredNames(t *testing.T) {
	for _, name := range []string{"a[b", "a{b", " a", "a\u2028", "a\n`[<"} {
		forms := map[Form]error{{Family: Mistral}: ErrNoForm, {Family: Mistral, List: true}: nil, {Family: Tagged}: nil}
		if !strings.ContainsAny(name, "[{") || strings.Contains(name, "<") {
			forms[Form{Family: DeepSeek}] = ErrNoForm
		}
		if name != "a[b" {
			forms[Form{Family: Gemma}] = ErrNoForm
		}
		for form, want := range forms {
			if _, err := NewRequired(form, nil, []Tool{{Name: name}}, true, false); !errors.Is(err, want) {
				t.Errorf("%q in %+v: %v", name, form, err)
			}
		}
	}
}
