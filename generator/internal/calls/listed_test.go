package calls

import (
	"strings"
	"testing"
)

// Calls of DeepSeek are found in both of its forms, whether its markers are control tokens or not.
func TestListedCalls(t *testing.T) {
	const arguments = `{"a": "}\"<", "b": ["` + "```" + `"]}`
	one := func(name string) string { return oneBegin + name + separator + arguments + oneEnd }
	older := func(name string) string {
		return oneBegin + "function" + separator + name + "\n```json\n" + arguments + "\n```" + oneEnd
	}
	for _, c := range []struct {
		o    Options
		call func(string) string
	}{{deepseek, one}, {fenced, older}} {
		get, put := "0 get "+arguments, "1 put "+arguments
		want(t, c.o, callsBegin+c.call("get")+callsEnd, "", "", get)
		want(t, c.o, "Yes.\n"+callsBegin+"\n"+c.call("get")+"\n"+c.call("put")+callsEnd+"\n```x", "", "Yes.```x", get, put)
		want(t, c.o, callsBegin+c.call("get")+callsBegin+c.call("put"), "", "", get, put)
		want(t, c.o, callsBegin+c.call("no")+callsEnd, "", callsBegin+c.call("no")+callsEnd)
		single, control := c.o, c.o
		single.Single = true
		want(t, single, callsBegin+c.call("get")+c.call("put"), "", "", get)
		control.Control = []string{callsBegin, callsEnd, oneBegin, oneEnd, separator}
		marked := func(text string) string {
			for _, m := range control.Control {
				text = strings.ReplaceAll(text, m, "\x01"+m+"\x02")
			}
			return text
		}
		want(t, control, marked("a"+callsBegin+c.call("get")+c.call("put")+callsEnd)+" b", "", "ab", get, put)
		want(t, control, callsBegin+c.call("get"), "", callsBegin+c.call("get"))
		want(t, control, marked(callsBegin+oneEnd+"x"+separator+"y"), "", "xy")
	}
	want(t, deepseek, callsBegin+one("get")+"x"+one("put"), "", "x"+one("put"), "0 get "+arguments)
}

// What is undecided of a call of DeepSeek is bounded.
func TestBoundsOfListedCalls(t *testing.T) {
	for _, text := range []string{
		callsBegin + strings.Repeat(" ", 2*maxHead), callsBegin + oneBegin + strings.Repeat("x", maxName+1),
		callsBegin + oneBegin + "get" + separator + strings.Repeat("\n", 2*maxHead),
	} {
		r := NewReader(deepseek)
		if r.Push(text); len(text)-r.Decided() > maxSpace {
			t.Errorf("%.80s: %d bytes are undecided", text, len(text)-r.Decided())
		}
	}
}

// What only looks like a call of DeepSeek is text, and a call that has begun stays one.
func TestTextThatLooksListed(t *testing.T) {
	for _, text := range []string{
		callsBegin, callsBegin + "x", callsBegin + oneBegin + "get", callsBegin + oneBegin + "get" + separator, oneBegin + "get" + separator +
			"{}", callsBegin + oneBegin + "get" + separator + "x", callsBegin + oneBegin + "get<" + separator + "{}",
		callsBegin + oneBegin + strings.Repeat("x", maxName+1), callsBegin + strings.Repeat(" ", maxHead),
		callsBegin + callsEnd, callsBegin + oneBegin + separator + "{}",
	} {
		want(t, deepseek, text, "", text)
	}
	const kind = callsBegin + oneBegin + "function" + separator
	for _, text := range []string{
		kind + "get{}", kind + "get\n{}", kind + "no\n```json\n{}", kind + "get\n```js\n{}", kind + "get\n```json\n[",
		callsBegin + oneBegin + "get" + separator + "{}",
	} {
		want(t, fenced, text, "", text)
	}
	want(t, deepseek, callsBegin+oneBegin+callsBegin+oneBegin+"get"+separator+"{}", "", callsBegin+oneBegin, "0 get {}")
	want(t, deepseek, callsBegin+oneBegin+"get"+separator+"{"+oneEnd, "", "", "0 get {"+oneEnd)
}
