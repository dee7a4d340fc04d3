package calls

import (
	"strings"
	"testing"
)

// channelled reads gpt-oss, whose markers are control tokens.
var channelled = Options{Form: Form{Family: Channelled, Tools: true, Channels: true}, Control: channelMarks, Apart: true,
	Tools: []string{"get", "put"}}

// controls returns a text of gpt-oss with its markers as control tokens.
func controls(text string) string {
	for _, m := range channelMarks {
		text = strings.ReplaceAll(text, m, "\x01"+m+"\x02")
	}
	return text
}

// What a message has is its channel's: reasoning, an answer, or the arguments of a call.
func TestChannels(t *testing.T) {
	const arguments = `{"a": "}\"<|end|>", "b": [{"c": 1}]}`
	const thought = "<|channel|>analysis<|message|>We think.\n<|end|>"
	const again = "<|start|>assistant"
	const answer = "<|channel|>final<|message|> Hi <b>!<|return|>"
	hidden := strings.ReplaceAll(arguments, "<|end|>", "")
	call := func(name, arguments string) string {
		return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" + arguments + "<|call|>"
	}
	for _, c := range []struct {
		text, reasoning, answer string
		calls                   []string
	}{
		{thought + again + answer, "We think.\n", " Hi <b>!", nil},
		{answer, "", " Hi <b>!", nil},
		{thought + again + call("get", hidden), "We think.\n", "", []string{"0 get " + hidden}},
		{thought + again + "<|channel|>commentary<|message|>I look.<|end|>" + again + call("get", "{}") + again +
			call("put", "{}"), "We think.\n", "I look.", []string{"0 get {}", "1 put {}"}},
		{" to=functions.get<|channel|>commentary json<|message|> {}\n<|call|>", "", "", []string{"0 get {}"}},
		{"<|channel|>analysis to=functions.get code<|message|>{}", "", "", []string{"0 get {}"}},
		{"<|channel|>commentary to=functions.get<|message|><|call|>", "", "", []string{"0 get {}"}},
		{"<|channel|>commentary to=functions.get<|message|>", "", "", []string{"0 get {}"}},
		{"<|channel|>commentary to=functions.get<|message|>{\"a\"", "", "", []string{"0 get {\"a\""}},
		{"<|channel|>commentary to=functions.get<|message|>a{}<|call|>", "", "a{}", nil},
		{call("other", "{}"), "", "{}", nil},
		{"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b", nil},
		{"<|channel|>analysis<|message|>a<|message|>b<|constrain|>c", "abc", "", nil},
		{"<|channel|>final", "", "", nil},
		{"Hello, assistant", "", "Hello, assistant", nil},
		{"as to <|end|>" + again + answer, "", "as to  Hi <b>!", nil},
		{"assist", "", "assist", nil},
		{"assistant to=" + strings.Repeat("x", maxHeader), "", "assistant to=" + strings.Repeat("x", maxHeader), nil},
	} {
		want(t, channelled, controls(c.text), c.reasoning, c.answer, c.calls...)
	}
}

// Without reasoning apart it is text, and without tools calls are; headers never are.
func TestChannelsAsText(t *testing.T) {
	together, alone := channelled, channelled
	together.Apart, alone.Tools = false, nil
	const text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.get" +
		"<|message|>{}<|call|>"
	want(t, together, controls(text), "", "a", "0 get {}")
	want(t, alone, controls(text), "a", "{}")
}

// Characters that spell a marker are text, and a vocabulary without the control tokens has no channels.
func TestSpelledChannels(t *testing.T) {
	want(t, channelled, controls("<|channel|>final<|message|>")+"a<|end|>b", "", "a<|end|>b")
	all := map[int32]string{}
	for i, m := range channelMarks {
		all[int32(i)] = m
	}
	if f := channelled.Form; f.With(all) != f || f.With(map[int32]string{1: channelMark}) != (Form{Tools: true}) {
		t.Errorf("%+v, %+v", f.With(all), f.With(nil))
	}
	if f := (Form{Begin: "a", End: "b"}); f.With(nil) != f {
		t.Errorf("%+v", f.With(nil))
	}
}

// Single ends the completion with its first call.
func TestSingleCallInAChannel(t *testing.T) {
	single := channelled
	single.Single = true
	for _, arguments := range []string{"{} a", " "} {
		want(t, single, controls("<|channel|>commentary to=functions.get<|message|>"+arguments+
			"<|call|><|start|>assistant<|channel|>final<|message|>b"), "", "", "0 get {}")
	}
}

// A template in the form of gpt-oss's has channels, and calls if it shows tools.
func TestFormWithChannels(t *testing.T) {
	const messages = "<|start|>assistant<|channel|>final<|message|>"
	if f := FormOf(messages + "tools <tool_call> arguments </think>"); f != (Form{Family: Channelled, Tools: true, Channels: true}) {
		t.Errorf("%+v", f)
	}
	if f := FormOf(messages); f != (Form{Channels: true}) || !f.Reasons() || f.Markers()[0] != startMark {
		t.Errorf("%+v", f)
	}
}
