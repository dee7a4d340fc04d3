package calls

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// gemmaControl are the markers of the form as control tokens, as in tokenizer.json.
var gemmaControl = append([]string{thoughtBegin, "<channel|>"}, markers[Gemma]...)

// inGemma returns a text with the form's markers as control tokens.
func inGemma(text string) string {
	for _, m := range gemmaControl {
		text = strings.ReplaceAll(text, m, "\x01"+m+"\x02")
	}
	return text
}

// wantPairs compares what is found of a call's arguments, with markers that are text and with control tokens.
func wantPairs(t *testing.T, written, arguments string) {
	t.Helper()
	text := "Yes.\n<|tool_call>call:get" + written + "<tool_call|>"
	want(t, gemma, text+"\nSo.", "", "Yes.So.", "0 get "+arguments)
	control := gemma
	control.Control = gemmaControl
	want(t, control, inGemma(text)+"\nSo.", "", "Yes.So.", "0 get "+arguments)
	if !json.Valid([]byte(arguments)) {
		t.Errorf("%s is no JSON", arguments)
	}
}

// Arguments become JSON: texts between quotes are quoted as they are, bare values are what is JSON of them, or strings.
func TestPairs(t *testing.T) {
	const q = quoteMark
	for written, arguments := range map[string]string{
		`{}`:                            `{}`,
		`{ }`:                           `{}`,
		`{s:` + q + `x` + q + `}`:       `{"s": "x"}`,
		`{s:` + q + q + `}`:             `{"s": ""}`,
		`{s:` + q + `12` + q + `,n:12}`: `{"s": "12", "n": 12}`,
		`{s:` + q + "a \"b\"\n\\c {}[],:< <| <|\" |>\x01 é" + q + `}`: `{"s": "a \"b\"\n\\c {}[],:< <| <|\" |>\u0001 é"}`,
		`{n:-1.5e3,b:true,x:null,y:false}`:                            `{"n": -1.5e3, "b": true, "x": null, "y": false}`,
		`{b:True,x:None,y:False,l:[None]}`:                            `{"b": true, "x": null, "y": false, "l": [null]}`,
		`{l:[` + q + `a,]` + q + `,1,[],[2,{k:true}]],o:{a:{b:` + q + `}` + q + `},c:[]}}`: `{"l": ["a,]", 1, [], [2, {"k": true}]], ` +
			`"o": {"a": {"b": "}"}, "c": []}}`,
		"{ s : " + q + "x" + q + " , l : [ 1 , 2 ] , o : { a : 1 } }": `{"s": "x", "l": [1, 2], "o": {"a": 1}}`,
		`{` + q + `a:b}` + q + `:1,o:{` + q + `"` + q + `:2}}`:        `{"a:b}": 1, "o": {"\"": 2}}`,
		`{free:Oslo city,l:[1.2.3, 007 ,<b>]}`:                        `{"free": "Oslo city", "l": ["1.2.3", "007", "<b>"]}`,
		`{free:a "b",other:x<|"|y}`:                                   `{"free": "a \"b\"", "other": "x<|\"|y"}`,
		`{s:12,x:12,o:{s:12}}`:                                        `{"s": "12", "x": 12, "o": {"s": 12}}`,
		`{s:True,s:null}`:                                             `{"s": "True", "s": null}`,
		`{s:,n:}`:                                                     `{"s": "", "n": ""}`,
		`{a:1,l:[1,],}`:                                               `{"a": 1, "l": [1]}`,
		`{"s": "a \"b\" \\", "l": ["}", {"k": 1.5}], "o": {}}`:        `{"s": "a \"b\" \\", "l": ["}", {"k": 1.5}], "o": {}}`,
		`{"a\"\u00e9": 1}`:                                            `{"a\"é": 1}`,
		`{free:` + strings.Repeat("x ", maxHead) + `<y}`:              `{"free": "` + strings.Repeat("x ", maxHead) + `<y"}`,
		`{l:[1,` + strings.Repeat("x", maxHead+9) + `]}`:              `{"l": [1, "` + strings.Repeat("x", maxHead+9) + `"]}`,
	} {
		if !strings.Contains(arguments, "\\u0001") { // read takes it for a control token
			wantPairs(t, written, arguments)
			continue
		}
		wantPairs(t, strings.ReplaceAll(written, "\x01", "\x03"), strings.ReplaceAll(arguments, "\\u0001", "\\u0003"))
	}
	const call, done = `<|tool_call>call:get{n:1}`, `<tool_call|>`
	want(t, gemma, call+done+strings.ReplaceAll(call, "get", "put")+done, "", "", `0 get {"n": 1}`, `1 put {"n": 1}`)
	want(t, gemma, "a \n"+call+done+"\n"+call+done+resultBegin+"response:get{", "", "a", `0 get {"n": 1}`, `1 get {"n": 1}`)
	want(t, gemma, call+call, "", "", `0 get {"n": 1}`, `1 get {"n": 1}`)
	want(t, gemma, "<|tool_call>\n call: get {n:1}\n"+done, "", "", `0 get {"n": 1}`)
}

// What only looks like a call is text, each byte of it.
func TestTextThatLooksLikePairs(t *testing.T) {
	for _, text := range []string{
		"<|tool_call>", "<|tool_call>call:", "<|tool_call>call:get", "<|tool_call>get{}", "<|tool_call>call:other{}<tool_call|>",
		"<|tool_call>call:get<", "<|tool_call>call:\n", "<|tool_call>call:get\n{}", "<|tool_call>{}", "<tool_call|>", "call:get{}",
		`<|"|>`, "<|tool_response>", "<|tool_call", "<|tool_call>call:" + strings.Repeat("x", maxName+1),
		"<|tool_call>" + strings.Repeat(" ", maxHead),
	} {
		want(t, gemma, text, "", text)
	}
	want(t, gemma, "<|tool_call>call:no{}<|tool_call>call:get{}", "", "<|tool_call>call:no{}", "0 get {}")
	o := gemma
	o.Control = gemmaControl
	want(t, o, inGemma("<|tool_call>call:get")+`<|"|>`, "", `call:get<|"|>`)
	want(t, o, inGemma("<|tool_call>call:g<|tool_call>call:get{}<tool_call|>"), "", "call:g", "0 get {}")
	want(t, o, `<|tool_call>call:get{}`, "", `<|tool_call>call:get{}`)
}

// A call that has begun stays one: what has no place in it ends it, and in a text that does not end it is not complete.
func TestBrokenPairs(t *testing.T) {
	const head, done = "<|tool_call>call:get{", "<tool_call|>"
	for _, c := range []struct {
		text, then, arguments string
		complete              int
	}{
		{`a:<|"|>x`, "", `{"a": "x`, 0}, {`a:<|"|>x<|"`, "", `{"a": "x`, 0}, {`a:"x`, "", `{"a": "x`, 0}, {`a:12`, "", `{"a": `, 0},
		{`a:<|"|>x` + done, "", `{"a": "x` + done, 0}, {`a:"x` + done + `"`, "", `{"a": "x` + done + `"`, 0}, {"a", "", `{`, 0},
		{`a:1` + done + "b", "b", `{"a": 1}`, 1}, {`a:` + done, "", `{"a": ""}`, 1}, {`a` + done, "", `{}`, 1}, {done, "", "{}", 1},
		{`a:{b:[1` + done, "", `{"a": {"b": [1]}}`, 1}, {`a:{b:[{` + done, "", `{"a": {"b": [{}]}}`, 1},
		{`a:<|"|>x<|"|>y`, "y", `{"a": "x"}`, 1}, {`a:<|"|>x<|"|><y`, "<y", `{"a": "x"}`, 1}, {`a:1]`, "]", `{"a": 1}`, 1},
		{`a:[1}`, "}", `{"a": [1]}`, 1}, {`a:[}`, "}", `{"a": []}`, 1}, {`a:[1,,2]}`, ",2]}", `{"a": [1]}`, 1}, {`a:1,,b:2}`, ",b:2}", `{"a": 1}`, 1},
		{`a:1,b}`, "}", `{"a": 1}`, 1}, {`a:1,"b" 2}`, "2}", `{"a": 1}`, 1}, {`a:1,<|"|>b<|"|>}`, "}", `{"a": 1}`, 1},
		{`a:1} }`, "}", `{"a": 1}`, 1}, {`a:<|"|>x<|"|> <|"|>`, `<|"|>`, `{"a": "x"}`, 1},
		{"a:1," + strings.Repeat("x", maxName+1) + "y", "y", `{"a": 1}`, 1},
	} {
		want(t, gemma, head+c.text, "", c.then, "0 get "+c.arguments)
		if got := read(t, gemma, head+c.text, 3); got.complete != c.complete {
			t.Errorf("%s: %d complete calls", c.text, got.complete)
		}
	}
	o := gemma
	o.Control = gemmaControl
	want(t, o, inGemma(`<|tool_call>call:get{a:<|"|>x<|tool_call><tool_call|><|"|>,b:1<|tool_call>call:put{<|"|>c<|"|>:2<tool_call|>`),
		"", "", `0 get {"a": "x", "b": 1}`, `1 put {"c": 2}`)
	want(t, o, inGemma(`<|tool_call>call:get{a:1<|"|>b`), "", "b", `0 get {"a": 1}`)
	want(t, o, inGemma(`<|tool_call>call:get{a:<tool_call|>b`), "", "b", `0 get {"a": ""}`)
	want(t, o, inGemma(`<|tool_call>call:get{a:1}<tool_call|><|tool_response>response:get{`), "", "", `0 get {"a": 1}`)
	o.Single = true
	want(t, o, inGemma(`<|tool_call>call:get{a:1<tool_call|><|tool_call>call:put{}`), "", "", `0 get {"a": 1}`)
	single := gemma
	single.Single = true
	want(t, single, `<|tool_call>call:get{a:1}<tool_call|>x`, "", "", `0 get {"a": 1}`)
}

// What is undecided of a call is bounded, and a text streams.
func TestBoundsOfPairs(t *testing.T) {
	const head = "<|tool_call>call:get{"
	for text, most := range map[string]int{
		"<|tool_call>" + strings.Repeat(" ", 2*maxHead): maxSpace, head + strings.Repeat(" ", 2*maxHead): 0,
		head + `a:<|"|>x`: 0, head + `a:<|"|>x<|"`: 3, head + `a:"x`: 0, head + "a:" + strings.Repeat("x", 2*maxHead): 0,
		head + "a:1" + strings.Repeat("2", maxHead-2): maxHead, head + strings.Repeat("k", 2*maxName): 0,
		head + "a:[1, " + strings.Repeat("[", 2*maxHead): 0, head + "a:" + strings.Repeat("[1, ", maxHead): 0,
	} {
		r := NewReader(gemma)
		r.options.ID = func(int) string { return "" }
		if r.Push(text); len(text)-r.Decided() > most {
			t.Errorf("%.80s: %d bytes are undecided", text, len(text)-r.Decided())
		}
	}
}

// Reasoning loses its title with its tags, whether the prompt, the completion or neither has the tag, and wherever it
// comes in an answer.
func TestTitledReasoning(t *testing.T) {
	inside, together, exactly := titled, titled, titled
	inside.Inside, together.Apart, exactly.Exact = true, false, true
	const call = `<|tool_call>call:get{}<tool_call|>`
	for _, c := range []struct {
		o                       Options
		text, reasoning, answer string
		calls                   []string
	}{
		{titled, "<|channel>thought\na\n b\n<channel|>c\n", "a\n b", "c\n", nil},
		{titled, "<|channel>thought\n<channel|>c", "", "c", nil},
		{titled, "<|channel><channel|>c", "", "c", nil},
		{titled, "<|channel>thought<channel|>c", "", "c", nil},
		{titled, "<|channel>thoughts\n<channel|>c", "thoughts", "c", nil},
		{titled, "<|channel>tho<channel|>c", "tho", "c", nil},
		{titled, "<|channel> thought a<channel|>c", "thought a", "c", nil},
		{titled, "<|channel>thou", "thou", "", nil},
		{titled, "<|channel>thought", "", "", nil},
		{titled, "c\n<|channel>thought\n<channel|>", "", "c", nil},
		{titled, "c <|channel>thought\nd<channel|> e<channel|>", "d", "ce", nil},
		{titled, "<|channel>thought\na" + call + "<channel|>" + call + "\n<|channel>thought\nb<channel|>\n" + call,
			"a" + call + "b", "", []string{"0 get {}", "1 get {}"}},
		{titled, "Just <text>", "", "Just <text>", nil},
		{inside, "a\n<channel|>b", "a", "b", nil},
		{inside, "\n\na<channel|>" + call, "a", "", []string{"0 get {}"}},
		{inside, "thought\na<channel|>b", "a", "b", nil},
	} {
		want(t, c.o, c.text, c.reasoning, c.answer, c.calls...)
		o := c.o
		o.Control = gemmaControl
		want(t, o, inGemma(c.text), strings.ReplaceAll(c.reasoning, call, "call:get{}"), c.answer, c.calls...)
	}
	const text = "<|channel>thought\na<channel|>\n"
	want(t, together, text+"b"+call, "", text+"b", "0 get {}")
	want(t, together, inGemma(text+"b"), "", "thought\na\nb")
	want(t, exactly, text+"b<|channel>c<channel|>", "a", "b<|channel>c<channel|>")
}

// A template in the form of Gemma 4's has calls, if it shows tools, and reasoning with a title.
func TestFormOfGemma(t *testing.T) {
	const calls, thought = "{{ tools }}'<|tool_call>call:' + name", "'<|channel>thought\\n<channel|>'"
	reasons := Form{Begin: thoughtBegin, End: "<channel|>", Title: thoughtTitle}
	if f := FormOf(thought); f != reasons {
		t.Errorf("%+v", f)
	}
	reasons.Family, reasons.Tools = Gemma, true
	if f := FormOf(calls + thought); f != reasons || !slices.Equal(f.Markers(), gemmaControl) {
		t.Errorf("%+v, %q", f, f.Markers())
	}
	if f := FormOf(calls); f != (Form{Family: Gemma, Tools: true}) {
		t.Errorf("%+v", f)
	}
}

// A prompt that ends a turn gets the beginning of the next one, in this form alone.
func TestOpening(t *testing.T) {
	for prompt, want := range map[string]string{"So.<turn|>\n": "<|turn>model\n", "<|turn>model\n": "", "<tool_response|>": "", "": ""} {
		if got := titled.Form.Opening(prompt); got != want || gemma.Form.Opening(prompt) != "" {
			t.Errorf("%q: %q", prompt, got)
		}
	}
}
