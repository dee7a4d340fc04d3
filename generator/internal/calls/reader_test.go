package calls

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// outcome is what a Reader found.
type outcome struct {
	text, reasoning string
	calls           []string // id name arguments
	complete        int
}

// read reads a text in pieces of n bytes, with control tokens between \x01 and \x02, and takes the spans as they come.
func read(t testing.TB, o Options, text string, n int) (got outcome) {
	t.Helper()
	o.ID = func(i int) string { return fmt.Sprint(i) }
	r := NewReader(o)
	plain := ""
	take := func() {
		for _, s := range r.Spans {
			part := plain[s.Start:s.End]
			switch s.Kind {
			case Text:
				got.text += part
			case Reasoning:
				got.reasoning += part
			case Call:
				got.calls = append(got.calls, s.ID+" "+s.Name+" "+s.Arguments)
			case Arguments:
				got.calls[len(got.calls)-1] += s.Part(part)
			}
			if s.End > r.Decided() {
				t.Fatalf("%+v is beyond the %d decided bytes", s, r.Decided())
			}
		}
		r.Spans = r.Spans[:0]
	}
	for text != "" {
		if marker, rest, is := strings.Cut(strings.TrimPrefix(text, "\x01"), "\x02"); is && text[0] == '\x01' {
			r.Mark(marker)
			text = rest
			continue
		}
		piece := text[:min(n, len(text))]
		if at := strings.IndexByte(piece, '\x01'); at > 0 {
			piece = piece[:at]
		}
		text = text[len(piece):]
		plain += piece
		r.Push(piece)
		take()
	}
	r.End()
	take()
	if r.Decided() != len(plain) {
		t.Errorf("%d of %d bytes are decided", r.Decided(), len(plain))
	}
	got.complete = r.Calls()
	return got
}

// want compares what is found in a text, in pieces of every length, of a long text up to 200 and whole, with an
// outcome.
func want(t *testing.T, o Options, text, reasoning, answer string, calls ...string) {
	t.Helper()
	for n := range len(text) + 1 {
		if n > 200 && n < len(text) {
			continue
		}
		got := read(t, o, text, n+1)
		if got.text != answer || got.reasoning != reasoning || !slices.Equal(got.calls, calls) {
			t.Fatalf("%q in pieces of %d:\ngot  %q, %q, %q\nwant %q, %q, %q", text, n+1,
				got.reasoning, got.text, got.calls, reasoning, answer, calls)
		}
	}
}

var (
	hermes   = Options{Form: Form{Family: Tagged}, Tools: []string{"get", "put"}}
	llama    = Options{Form: Form{Family: Bare}, Tools: []string{"get", "put"}}
	coder    = Options{Form: Form{Family: Coder}, Tools: []string{"get", "put"}, Types: elementTypes}
	glm      = Options{Form: Form{Family: GLM}, Tools: []string{"get", "put"}, Types: elementTypes}
	deepseek = Options{Form: Form{Family: DeepSeek}, Tools: []string{"get", "put"}}
	fenced   = Options{Form: Form{Family: DeepSeek, Fenced: true}, Tools: []string{"get", "put"}}
	gemma    = Options{Form: Form{Family: Gemma}, Tools: []string{"get", "put"}, Types: elementTypes}
	titled   = Options{Form: Form{Family: Gemma, Begin: thoughtBegin, End: "<channel|>", Title: thoughtTitle}, Apart: true,
		Tools: []string{"get", "put"}}
	mistral  = Options{Form: Form{Family: Mistral}, Tools: []string{"get", "put"}}
	piped    = Options{Form: Form{Family: Piped, List: true}, Tools: []string{"get", "put"}}
	lined    = Options{Form: Form{Family: Lined}, Tools: []string{"get", "get_all", "put"}}
	thinking = Options{Form: Form{Begin: "<think>", End: "</think>"}, Apart: true}
	exact    = Options{Form: Form{Begin: "<think>", End: "</think>"}, Apart: true, Inside: true, Exact: true}
	both     = Options{Form: Form{Family: Tagged, Tools: true, Begin: "<think>", End: "</think>"}, Apart: true, Tools: []string{"get"}}
)

// Calls of each family are found in pieces of every length.
func TestCalls(t *testing.T) {
	const arguments = `{"a": "}\"]", "b": [{"c": 1}]}`
	call := func(key, name string) string { return `{"name": "` + name + `", "` + key + `": ` + arguments + `}` }
	get, put := "0 get "+arguments, "1 put "+arguments
	tag := func(s string) string { return "<tool_call>\n" + s + "\n</tool_call>" }

	want(t, hermes, tag(call("arguments", "get")), "", "", get)
	want(t, hermes, "\n\n"+tag(call("arguments", "get"))+"\n"+tag(call("arguments", "put"))+"\n", "", "", get, put)
	want(t, hermes, "I look.\n\n"+tag(call("arguments", "get"))+"\nDone. <", "", "I look.Done. <", get)
	want(t, hermes, "<tool_call>"+call("parameters", "get")+"<tool_call>"+call("arguments", "put"), "", "", get, put)
	want(t, hermes, tag(`{"arguments": `+arguments+`, "name": "get"}`), "", "", get)
	want(t, hermes,
		tag(`{"id": "x", "type":"function","name" :"g\u0065t","arguments":`+arguments+`, "z": -1.5e3, "y": []}`), "", "", get)
	want(t, hermes, tag(`{"name": "get"}`)+tag(`{"name": "put", "arguments": {}}`), "", "", "0 get {}", "1 put {}")

	want(t, llama, call("parameters", "get"), "", "", get)
	want(t, llama, " "+call("parameters", "get")+"; "+call("arguments", "put")+";", "", ";", get, put)
	want(t, llama, call("parameters", "get")+"\n"+call("parameters", "put"), "", "", get, put)
	want(t, llama, "I look. <|python_tag|>"+call("parameters", "get")+" So.", "", "I look.So.", get)

	want(t, mistral, "[TOOL_CALLS] ["+call("arguments", "get")+", "+call("arguments", "put")+"]", "", "", get, put)
	want(t, mistral, "Hm.[TOOL_CALLS]["+call("arguments", "get")+"] Yes, [1].", "", "Hm.Yes, [1].", get)
	want(t, mistral, "[TOOL_CALLS]"+call("arguments", "get"), "", "", get)
	want(t, mistral, "[TOOL_CALLS]get[ARGS]"+arguments+"[TOOL_CALLS]put[CALL_ID]abcdefghi[ARGS] "+arguments, "", "",
		get, put)
	want(t, mistral, "[TOOL_CALLS] get"+arguments+" ", "", "", get)

	want(t, lined, "get\n"+arguments, "", "", get)
	want(t, lined, "\nget_all\n "+arguments+"\nDone.", "", "Done.", "0 get_all "+arguments)
	want(t, lined, "get\n{ }", "", "", "0 get { }")
	for _, text := range []string{"get\n{\n  int x = 1;\n}", "get\n{", "get", "get\n", "get it", "get\n[1]", "other\n{}", "So: get\n{}", "get {}", "get_\n{}"} {
		want(t, lined, text, "", text)
	}

	want(t, piped, "<|tool_call|>["+call("arguments", "get")+", "+call("arguments", "put")+"]", "", "", get, put)
	want(t, piped, "Hm. <|tool_call|>["+call("arguments", "get")+"]<|/tool_call|>\nYes, [1].", "", "Hm.Yes, [1].", get)
	want(t, piped, "<|tool_call|>"+call("arguments", "get")+"<|/tool_call|><|tool_call|>"+call("arguments", "put"), "", "",
		get, put)
	want(t, piped, "<|tool_call|>["+call("arguments", "get")+"<|/tool_call|>, ]", "", ", ]", get)
	want(t, piped, "<|tool_call|>get{}", "", "<|tool_call|>get{}")
}

// What only looks like a call is text, each byte of it.
func TestTextThatLooksLikeACall(t *testing.T) {
	for _, text := range []string{
		"<tool_call>", "<tool_call", "a <tool_call>\n{", `<tool_call>{"name": "get", "arg`,
		`<tool_call>{"name": "get", "arguments": `,
		`<tool_call>{"name": "other", "arguments": {}}</tool_call>`, `<tool_call>{"name": 1, "arguments": {}}</tool_call>`,
		`<tool_call>{"name": "get", "arguments": "{}"}</tool_call>`, `<tool_call>{"city": "Rome"}</tool_call>`,
		"<tool_call>{}",
		"<tool_call>\n<function=get>\n</function>\n</tool_call>", `{"name": "get", "arguments": {}}`,
		"</tool_call> </think> x <",
		`<tool_call>{"arguments": {}}</tool_call>`, `<tool_call>{"name" "get"}`, `<tool_call>{"arguments": {}, "name": "no"}`,
		`<tool_call>{"type": "get", "name": ["x"], "arguments": {}}`, "a\n\n\n", " \t ", strings.Repeat("\n", maxSpace+9) +
			"x", "<tool_call>" + strings.Repeat(" ", maxHead) + "{",
		`<tool_call>{"name": "get", "type": "` + strings.Repeat("x", maxHead) + `"}`, `<tool_call>[{"name": "get"}]`,
	} {
		want(t, hermes, text, "", text)
	}
	for _, text := range []string{
		`{"answer": 42}`, `{"name": "Bob", "age": 3}`, "Hello {\"name\": \"get\", \"parameters\": {}}", "{", "{}",
		`{"name": "get"`,
		`[{"name": "get", "parameters": {}}]`, `<|python_tag|>get.call(x="1")`, `<|python_tag|>print(1)`, "<|python",
	} {
		want(t, llama, text, "", text)
	}
	for _, text := range []string{
		"[TOOL_CALLS]", "[TOOL_CALLS] [", "[TOOL_CALLS] []", "[TOOL_CALLS]other[ARGS]{}", "[TOOL_CALLS]get[ARGS]",
		"[TOOL_CALLS]get[ARGS]x",
		"[TOOL_CALLS]get[ARG]{}", "[TOOL_CALLS]get[CALL_ID]x{}", "[TOOL_CALLS]get[CALL_ID]x[X", "[ARGS]{}", "[1, 2]",
		"[TOOL_CALLS]get",
		"[TOOL_CALLS]" + strings.Repeat("x", maxName+1), "[TOOL_CALLS]" + strings.Repeat(" ", maxHead) + "get[ARGS]{}",
		"[TOOL_CALLS][\"a\"]",
		"[TOOL_CALLS]{}", "[TOOL_CALLS]other{}",
	} {
		want(t, mistral, text, "", text)
	}
	want(t, hermes, `<tool_call><tool_call>{"name": "get", "arguments": {}}`, "", "<tool_call>", "0 get {}")
	want(t, mistral, `[TOOL_CALLS]no[TOOL_CALLS]get[ARGS]{}`, "", "[TOOL_CALLS]no", "0 get {}")
	want(t, mistral, `[TOOL_CALLS]get[[TOOL_CALLS]get[ARGS]{}`, "", "[TOOL_CALLS]get[", "0 get {}")
	want(t, llama, `{"name": "get", "parameters": {}}; {"x": 1}`, "", `; {"x": 1}`, "0 get {}")
	want(t, Options{Form: hermes.Form}, `<tool_call>{"name": "get", "arguments": {}}`, "",
		`<tool_call>{"name": "get", "arguments": {}}`)
}

// What is undecided is bounded: white space, a call's head, its name. Without tools no call is waited for.
func TestBounds(t *testing.T) {
	plain := both
	plain.Tools = nil
	long := func(s string) string { return strings.Repeat(s, 2*maxHead) }
	for name, c := range map[string]struct {
		o    Options
		text string
		most int // undecided bytes
	}{
		"white space": {hermes, "a" + long("\n"), maxSpace}, "before reasoning": {thinking, long(" "), maxSpace},
		"a head": {hermes, "<tool_call>" + long(" "), maxSpace}, "a value": {hermes, `<tool_call>{"name": "get", "id": "` +
			long("x"), 0},
		"a name": {mistral, "[TOOL_CALLS]" + strings.Repeat("x", maxName+1), 0}, "an id": {mistral,
			"[TOOL_CALLS]get[CALL_ID]" + long("x"), 0},
		"arguments": {mistral, "[TOOL_CALLS]get[ARGS]{" + long("x"), 0}, "no tools": {plain, "a <tool_call>", 0},
	} {
		r := NewReader(c.o)
		if r.options.ID = func(int) string { return "" }; r.Decided() != 0 {
			t.Fatal("bytes are decided before there are any")
		}
		if r.Push(c.text); len(c.text)-r.Decided() > c.most {
			t.Errorf("%s: %d of %d bytes are undecided", name, len(c.text)-r.Decided(), len(c.text))
		}
	}
}

// A call whose arguments have begun stays a call, and is not complete before they end.
func TestBrokenCalls(t *testing.T) {
	const head = `<tool_call>{"name": "get", "arguments": `
	want(t, hermes, head+`{"a": "<tool_call>`, "", "", `0 get {"a": "<tool_call>`)
	want(t, hermes, head+`{}x</tool_call>`, "", "x</tool_call>", "0 get {}")
	want(t, hermes, head+`{}</tool_call>`, "", "", "0 get {}")
	want(t, hermes, head+`{}, `, "", "", "0 get {}")
	for text, complete := range map[string]int{head + "{": 0, head + "{}": 1, head + "{}}" + head + "{": 1, head: 0} {
		if got := read(t, hermes, text, 3); got.complete != complete {
			t.Errorf("%s: %d complete calls, want %d", text, got.complete, complete)
		}
	}
}

// Reasoning comes apart, without its tags and the white space beside them.
func TestReasoning(t *testing.T) {
	inside, text := thinking, thinking
	inside.Inside = true
	text.Apart = false
	text.Tools, text.Form.Family = []string{"get"}, Tagged
	want(t, thinking, "<think>\na\n b\n</think>\n\nc \n d\n", "a\n b", "c \n d\n")
	want(t, thinking, "\n<think></think>c", "", "c")
	want(t, thinking, " c <think>a</think>", "", " c <think>a</think>")
	want(t, thinking, "<th", "", "<th")
	want(t, thinking, "<think>a <", "a <", "")
	want(t, thinking, "<think>a </thin </think>", "a </thin", "")
	want(t, thinking, "<think>a</think>b</think>", "a", "b</think>")
	want(t, inside, "\na</think>\nb", "a", "b")
	want(t, inside, "<think>a</think>", "<think>a", "")
	want(t, exact, "a \n</think>\n\n\n b\n", "a", "\n b\n")
	want(t, exact, "</think> \nb<think>c</think>", "", " \nb<think>c</think>")
	want(t, exact, "a</think>\n", "a", "")
	want(t, text, "<think> a </think> b ", "", "<think> a </think> b ")
	const call = `<tool_call>{"name": "get", "arguments": {}}</tool_call>`
	want(t, text, "<think>"+call+"</think>\n"+call, "", "<think>"+call+"</think>", "0 get {}")
	want(t, both, "<think>"+call+"</think>\n"+call, call, "", "0 get {}")
	want(t, both, "<think>a</think>\n\nb\n"+call, "a", "b", "0 get {}")
	bare := llama
	bare.Form.Begin, bare.Form.End, bare.Apart = "<think>", "</think>", true
	want(t, bare, `<think>a</think> {"name": "get", "parameters": {}}`, "a", "", "0 get {}")
}

// Control tokens are markers where the vocabulary has them, and then nothing else is.
func TestControlTokens(t *testing.T) {
	newer := mistral
	newer.Control = []string{toolCalls, argsMark, idMark}
	mark := func(s string) string { return "\x01" + s + "\x02" }
	calls, arguments, id := mark(toolCalls), mark(argsMark), mark(idMark)
	want(t, newer, "a "+calls+"get"+arguments+`{"x": 1}`+calls+"put"+id+"z"+arguments+"{}", "", "a", `0 get {"x": 1}`,
		"1 put {}")
	want(t, newer, calls+` [{"name": "get", "arguments": {}}]`+calls+"get"+arguments+"{}", "", "", "0 get {}", "1 get {}")
	want(t, newer, "[TOOL_CALLS]get[ARGS]{}", "", "[TOOL_CALLS]get[ARGS]{}")
	want(t, newer, calls+"other"+arguments+"{}"+arguments, "", "other{}")
	want(t, newer, calls+"get"+calls+"get"+arguments+"{}", "", "get", "0 get {}")
	want(t, newer, calls+"get"+arguments+calls+"{"+id+arguments, "", "get{")
	want(t, newer, calls+"get"+arguments+`{"x"`+calls+": 1}"+calls, "", "", `0 get {"x": 1}`)
	want(t, newer, calls+` [{"name": "get", "arguments": {}`+calls+"get"+arguments+"{}", "", "", "0 get {}", "1 get {}")
	tags := thinking
	tags.Form.Begin, tags.Form.End, tags.Control = "[THINK]", "[/THINK]", []string{"[THINK]", "[/THINK]"}
	want(t, tags, mark("[THINK]")+"a [/THINK] "+mark("[/THINK]")+" b"+mark("[THINK]"), "a [/THINK]", "b")
	half := both
	half.Control = []string{callBegin}
	want(t, half, "a <thi"+mark(callBegin)+`{"name": "get", "arguments": {}}`, "", "a <thi", "0 get {}")
}

// Single ends the completion with its first call.
func TestSingleCall(t *testing.T) {
	for _, o := range []Options{hermes, llama, mistral, piped, lined} {
		o.Single = true
		text := `{"name": "get", "arguments": {"a": 1}}, {"name": "get", "arguments": {}}`
		text = map[Family]string{Tagged: "<tool_call>" + text, Bare: text, Mistral: "[TOOL_CALLS][" + text,
			Piped: "<|tool_call|>[" + text, Lined: "get\n{\"a\": 1}, {"}[o.Form.Family]
		want(t, o, text, "", "", `0 get {"a": 1}`)
	}
	o := hermes
	o.Single = true
	want(t, o, `<tool_call>{"name": "get"} a`, "", "", "0 get {}")
	want(t, o, `<tool_call>{"arguments": {}, "name": "get"} a`, "", "", "0 get {}")
	want(t, o, `<tool_call>{"arguments": {}`, "", `<tool_call>{"arguments": {}`)
}

// FuzzReader compares what is found in pieces with what is found in the whole text. Nothing is found that was not
// written, in its order.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"<think>a</think>\n\nb<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": 1}}\n</tool_call>",
		`{"name": "get", "parameters": {}}; {`,
		"[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {}}, {\"arguments\": {}, \"name\": \"put\"}]",
		"[TOOL_CALLS]get[CALL_ID]a[ARGS]{}", "<|tool_call|>[{\"name\": \"get\", \"arguments\": {}}]<|/tool_call|>",
		"get\n{\"a\": 1}\nx", "get_a\n{",
		"<tool_call>\n<function=get>\n<parameter=s>\na\"<\n</parameter>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
		"<tool_call>get\n<arg_key>s</arg_key>\n<arg_value>a\"<\n</arg_value><arg_key>o</arg_key><arg_value>{}</arg_value></tool_call>",
		"<tool_call>get\x01<arg_key>\x02s\x01</arg_key>\x02\x01<arg_value>\x02a\x01</arg_value>\x02\x01</tool_call>\x02",
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>x",
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>",
		"\x01<｜tool▁calls▁begin｜>\x02\x01<｜tool▁call▁begin｜>\x02get\x01<｜tool▁sep｜>\x02{}\x01<｜tool▁call▁end｜>\x02",
		controls("<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.get<|channel|>b<|message|>{}<|call|>"),
		"<|channel>thought\na\n<channel|>b<|tool_call>call:get{a:<|\"|>x\"<<|\"|>,b:[1,{c:true}]}<tool_call|><|tool_response>",
		"<|tool_call>call:get{\"a\": \"\\\"\", <|\"|>b<|\"|>: none, c:}<|channel>thought\n<channel|>",
		"\x01<|tool_call>\x02call:get{a:\x01<|\"|>\x02x<\x01<|\"|>\x02}\x01<tool_call|>\x02\x01<|tool_response>\x02",
		"\x01[TOOL_CALLS]\x02get\x01[ARGS]\x02{}", "[[TOOL_CALLS]", "<|python_tag|>{\"name\": \"get\"}",
	} {
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		for _, o := range []Options{hermes, llama, mistral, thinking, exact, both, coder, glm, deepseek, fenced,
			channelled, gemma, titled, piped, lined} {
			for _, set := range []func(){func() {}, func() { o.Control = o.Form.Markers() }, func() { o.Inside = true }} {
				set()
				whole, pieces := read(t, o, text, len(text)+1), read(t, o, text, int(n)+1)
				if fmt.Sprint(whole) != fmt.Sprint(pieces) {
					t.Fatalf("%q in pieces of %d: %+v, whole: %+v", text, int(n)+1, pieces, whole)
				}
				kept := len(whole.text) + len(whole.reasoning)
				for _, c := range whole.calls {
					kept += len(c)
				}
				if len(whole.calls) == 0 && !o.Form.Reasons() && kept < len(plainOf(text)) {
					t.Fatalf("%q lost bytes: %+v", text, whole)
				}
			}
		}
	})
}

// plainOf returns a text without control tokens.
func plainOf(text string) (plain string) {
	for text != "" {
		if _, rest, is := strings.Cut(text, "\x02"); is && text[0] == '\x01' {
			text = rest
			continue
		}
		plain, text = plain+text[:1], text[1:]
	}
	return plain
}

// A Reader's time grows with the text, and a long text takes little memory.
func BenchmarkReader(b *testing.B) {
	arguments, _ := json.Marshal(map[string]string{"text": strings.Repeat(`a "quoted" text `, 100)})
	text := strings.Repeat("Some text, then more. ", 100) + `<tool_call>{"name": "get", "arguments": ` +
		string(arguments) + `}</tool_call>`
	o := both
	o.ID = func(int) string { return "x" }
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for range b.N {
		r := NewReader(o)
		for at := 0; at < len(text); at += 4 {
			r.Push(text[at:min(at+4, len(text))])
			r.Spans = r.Spans[:0]
		}
		r.End()
	}
}
