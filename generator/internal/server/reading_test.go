package server

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// hermes is how a model of that family answers.
var hermes = Answers{Form: calls.Form{Family: calls.Tagged, Tools: true, Begin: "<think>", End: "</think>"}}

// gemma is how Gemma 4 answers.
var gemma = Answers{Form: calls.Form{Family: calls.Gemma, Tools: true, Begin: "<|channel>", End: "<channel|>",
	Title: "thought"}}

const toolGet = `[{"function":{"name":"get"}}]`

// asking returns a conversation of one trusted text, with the tool get and reasoning apart.
func asking(text string, n int) *protocol.Generate {
	g := conversation(1, n, protocol.Message{Role: "u", Content: text, Special: true})
	g.Tools, g.Reasoning, g.Seed = new(toolGet), new(protocol.ReasoningApart), new(uint64(7))
	return g
}

// divided passes the bytes of tokens through a text buffer for a request. It returns a line for each token, and how
// many
// tokens were emitted after each.
func divided(a Answers, g *protocol.Generate, pieces ...string) (lines []string, after []int, stopped bool) {
	model := &Model{Chat: &fakeChat{answers: a}}
	b := textBuffer{decoder: &pieceDecoder{pieces: pieces}, stops: stopFilter{stops: g.Stop}}
	b.read = newReading(model, g, nil, calls.Before)
	b.emit = func(t *protocol.Token) {
		line := fmt.Sprintf("%s|%s|", t.Reasoning, t.Text)
		for _, c := range t.Calls {
			if c.ID != "" {
				line += fmt.Sprintf("%d %s ", c.Index, c.Name)
			}
			line += c.Arguments
		}
		lines = append(lines, line)
	}
	for i := range pieces {
		if stopped = b.push(&protocol.Token{Token: int32(i)}); stopped {
			return lines, append(after, len(lines)), true
		}
		after = append(after, len(lines))
	}
	return lines, after, b.flush()
}

// Each token carries the reasoning, the text and the pieces of calls that it completes, and is held only while it is
// undecided which of them its text is.
func TestDividedTokens(t *testing.T) {
	control := hermes
	control.Control = map[int32]string{1: "<tool_call>", 4: "</tool_call>", 5: "<think>"}
	coder, glm := hermes, hermes
	coder.Form.Family, glm.Form.Family = calls.Coder, calls.GLM
	glm.Control = map[int32]string{0: "<tool_call>", 2: "<arg_key>", 4: "</arg_key>", 5: "<arg_value>", 7: "</arg_value>",
		8: "</tool_call>"}
	single, stop, typed := asking("", 1), asking("", 1), asking("", 1)
	typed.Tools = new(`[{"function":{"name":"get","parameters":{"properties":{"a":{"type":"string"}}}}}]`)
	single.ParallelToolCalls, stop.Stop = new(false), []string{"END", `"x"}`}
	channels := Answers{Form: calls.Form{Family: calls.Channelled, Tools: true, Channels: true}, Control: map[int32]string{
		0: "<|channel|>", 2: "<|message|>", 5: "<|end|>", 6: "<|start|>", 8: "<|channel|>", 10: "<|message|>", 12: "<|call|>",
	}}
	gemma := gemma
	gemma.Control = map[int32]string{0: "<|channel>", 3: "<channel|>", 5: "<|tool_call>", 8: `<|"|>`, 11: `<|"|>`,
		13: "<tool_call|>", 14: "<|tool_response>"}
	for name, c := range map[string]struct {
		a      Answers
		g      *protocol.Generate
		pieces []string
		want   []string
		after  []int
		stop   bool
	}{
		"reasoning": {hermes, asking("", 1), []string{"<thi", "nk>\n", "a", " b\n", "</think>\n", "\nc ", "d"},
			[]string{"||", "||", "a||", " b||", "||", "|c |", "|d|"}, []int{0, 2, 3, 3, 5, 5, 7}, false},
		"a call": {hermes, asking("", 1), []string{"I", " look.\n", "<tool_call>", `{"name": "g`, `et", "arguments": {"`,
			`a": "é`, `"}}`, "</tool_call>"},
			[]string{"|I|", "| look.|", "||", "||", `||0 get {"`, `||a": "é`, `||"}`, "||"}, []int{1, 1, 1, 1, 5, 6, 7, 8},
			false},
		"two calls in a token": {hermes, asking("", 1), []string{"a",
			`<tool_call>{"name": "get"}</tool_call><tool_call>{"name": "get", "arguments": {"b": 1}}`, "c"},
			[]string{"|a|", `||0 get {}1 get {"b": 1}`, "|c|"}, []int{1, 2, 3}, false},
		"no call": {hermes, asking("", 1), []string{"a<tool", "_call>", `{"name": `, `"no"`, "}", "<"},
			[]string{"|a<tool|", "|_call>|", `|{"name": |`, `|"no"|`, "|}|", "|<|"}, []int{0, 0, 0, 4, 5, 5}, false},
		"half a character in arguments": {hermes, asking("", 1), []string{`<tool_call>{"name": "get", "arguments": {"`,
			"\xc3", "\xa9", `"`},
			[]string{`||0 get {"`, "||", "||é", `||"`}, []int{1, 1, 3, 4}, false},
		"control tokens": {control, asking("", 1), []string{"a <tool_call>\n", "", ` {"name": "get", "arguments": {`, "}}",
			"", "", "b"},
			[]string{"|a <tool_call>|", "||", "||0 get {", "||}", "||", "||", "|b|"}, []int{0, 0, 3, 4, 5, 6, 7}, false},
		"parameters as elements": {coder, typed, []string{"<tool_call><function=get>\n<parameter=a>\n", "é\"", "1\n", "\n</",
			"parameter>", "<parameter=n>", "1", "2</parameter></function>", "</tool_call>b"},
			[]string{`||0 get {"a": "`, `||é\"`, `||1\n`, "||", `||"`, `||, "n": `, "||", "||12}", "|b|"},
			[]int{1, 2, 2, 3, 5, 6, 6, 8, 9}, false},
		"parameters between control tokens": {glm, typed, []string{"", "get", "", "a", "", "", "x", "", "", "b"},
			[]string{"||", "||", "||", `||0 get {"a": "`, "||", "||", "||x", `||"`, "||}", "|b|"},
			[]int{1, 1, 1, 1, 1, 6, 7, 8, 9, 10}, false},
		"channels": {channels, asking("", 1), []string{"", "analysis", "", "a", " b", "", "", "assistant to=functions.get", "",
			"commentary json", "", `{"x": 1}`, ""},
			[]string{"||", "||", "||", "a||", " b||", "||", "||", "||", "||", "||", "||", `||0 get {"x": 1}`, "||"},
			[]int{1, 1, 3, 4, 5, 6, 7, 7, 7, 7, 11, 12, 13}, false},
		"a call of Gemma 4": {gemma, typed, []string{"", "thought", "\nHm.", "", "So", "", "call:get", "{a:", "", "é\"", "\n",
			"", ",n:12}", "", "", "response:"},
			[]string{"||", "||", "Hm.||", "||", "|So|", "||", "||", `||0 get {"a": `, `||"`, `||é\"`, `||\n`, `||"`, `||, "n": 12}`,
				"||", "||"},
			[]int{1, 1, 3, 4, 5, 6, 6, 8, 9, 10, 11, 12, 13, 14, 15}, true},
		"the only call": {hermes, single, []string{`<tool_call>{"name": "get", `, `"arguments": {`, `"x": 1}, `, "z"},
			[]string{"||", "||0 get {", `||"x": 1}`}, []int{0, 2, 3}, true},
		"a stop string": {hermes, stop, []string{"a E", "N", "D<tool_call>"}, []string{"|a |", "||", "||"}, []int{0, 0, 3},
			true},
		"a stop string in arguments": {hermes, stop, []string{`<tool_call>{"name": "get", "arguments": {"a": "`, `x"`, "}"},
			[]string{`||0 get {"a": `, "||", "||"}, []int{0, 0, 3}, true},
		"an open stop string before a control token": {control, stop, []string{"a E", "", "ND"}, []string{"|a E|", "||",
			"|ND|"}, []int{0, 2, 3}, false},
		"an open stop string at the end": {hermes, stop, []string{"<think>a", "EN"}, []string{"a||", "EN||"},
			[]int{1, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			lines, after, stopped := divided(c.a, c.g, c.pieces...)
			if !slices.Equal(lines, c.want) || !slices.Equal(after, c.after) || stopped != c.stop {
				t.Errorf("got  %q, %d, %t\nwant %q, %d, %t", lines, after, stopped, c.want, c.after, c.stop)
			}
		})
	}
}

// A completion with a format has its reasoning apart in any case, and of the white space after it only two line feeds
// are not the format's. Calls in it are text.
func TestDividedFormats(t *testing.T) {
	plain := asking("", 1)
	plain.Reasoning, plain.Tools = nil, nil
	for _, g := range []*protocol.Generate{plain, asking("", 1)} {
		g.Format = &protocol.Format{JSON: true}
		const call = `<tool_call>{"name": "get"}</tool_call>`
		for text, want := range map[string]string{
			"<think>\na\n</think>\n\n{}": "a|{}|", "<think>a</think> b": "a| b|", "<think>a</think>\n\n\n b": "a|\n b|",
			"<think>" + call + "</think>" + call: call + "|" + call + "|", " \nb": "| \nb|", "<think>a": "a||",
			"<think></think>\n\t\nb": "|\t\nb|",
		} {
			if lines, _, _ := divided(hermes, g, text); strings.Join(lines, "") != want {
				t.Errorf("%q: %q, want %q", text, lines, want)
			}
		}
	}
}

// The answer that a format bounds has its channel in the prompt, and has no other.
func TestFormatsInAChannel(t *testing.T) {
	channels, format := calls.Form{Channels: true}, asking("", 1)
	format.Format = &protocol.Format{JSON: true}
	raw := generate(1, "x", 1)
	raw.Format = format.Format
	prompt := func() marked.Text { return marked.Trusted("<|start|>assistant") }
	if got := begun(prompt(), format, channels); got.String() != "<|start|>assistant<|channel|>final<|message|>" || got[0].Data {
		t.Errorf("%v", got)
	}
	for _, other := range []marked.Text{begun(prompt(), asking("", 1), channels), begun(prompt(), raw, channels),
		begun(prompt(), format, calls.Form{Begin: "<think>", End: "</think>"})} {
		if other.String() != "<|start|>assistant" {
			t.Errorf("%v", other)
		}
	}
	model := &Model{Chat: &fakeChat{answers: Answers{Form: channels}}}
	if newReading(model, format, nil, calls.Before) != nil {
		t.Error("the text of a format is divided")
	}
}

// A completion in which nothing is looked for has no Reader.
func TestNoReading(t *testing.T) {
	chat := &fakeChat{answers: hermes}
	unknown := &fakeChat{answers: Answers{Form: calls.Form{Tools: true}}}
	plain := conversation(1, 1, protocol.Message{Role: "u", Content: "x"})
	text, none := asking("", 1), asking("", 1)
	text.Reasoning, text.Tools = new(protocol.ReasoningText), nil
	none.Reasoning, none.ToolChoice = nil, new(protocol.ToolNone)
	format := asking("", 1)
	format.Format = &protocol.Format{JSON: true}
	raw := generate(1, "x", 1)
	raw.Reasoning, raw.Format = text.Reasoning, format.Format
	for name, c := range map[string]struct {
		model *Model
		g     *protocol.Generate
	}{
		"nothing asked": {&Model{Chat: chat}, plain}, "no template": {&Model{}, asking("", 1)},
		"an unknown form":   {&Model{Chat: unknown}, asking("", 1)},
		"reasoning as text": {&Model{Chat: chat}, text}, "no tools": {&Model{Chat: chat}, none},
		"a format without reasoning": {&Model{Chat: unknown}, format}, "a format after a prompt": {&Model{Chat: chat}, raw},
	} {
		if newReading(c.model, c.g, nil, calls.Within) != nil {
			t.Errorf("%s: the completion is divided", name)
		}
	}
	if newReading(&Model{Chat: chat}, format, nil, calls.After) != nil {
		t.Error("a completion with a format is divided after reasoning that has ended")
	}
	if newReading(&Model{Chat: chat}, asking("", 1), nil, calls.Before) == nil {
		t.Error("a completion with tools is not divided")
	}
	if r := newReading(&Model{Chat: &fakeChat{answers: gemma}}, asking("", 1), nil, calls.Before); !r.mayStop() ||
		newReading(&Model{Chat: chat}, asking("", 1), nil, calls.Before).mayStop() {
		t.Error("only a completion of Gemma 4 may end with a call")
	}
}

// The ids of calls have the form that templates want, differ within a request and between the turns of a
// conversation, and
// are the same for the same request.
func TestCallIDs(t *testing.T) {
	seen := map[string]string{}
	for name, id := range map[string]string{
		"a": callIDs(new(uint64(1)), []int32{1})(0), "index": callIDs(new(uint64(1)), []int32{1})(1),
		"seed": callIDs(new(uint64(2)), []int32{1})(0), "prompt": callIDs(new(uint64(1)), []int32{1, 2})(0),
		"drawn": callIDs(nil, []int32{1})(0), "drawn again": callIDs(nil, []int32{1})(0),
	} {
		if other, is := seen[id]; is || !regexp.MustCompile(`^[0-9A-Za-z]{9}$`).MatchString(id) {
			t.Errorf("%s: %q, as %s", name, id, other)
		}
		seen[id] = name
	}
	again := callIDs(new(uint64(1)), []int32{1})
	if seen[again(0)] != "a" {
		t.Error("the ids of a request change")
	}
}

// startTools starts a server of a model that calls tools. The completions of its engine are the prompts over and over.
func startTools(t *testing.T, mode RereadMode) (*fixture, *fakeChat) {
	f, chat := start(t, nil), &fakeChat{answers: hermes}
	m := f.model()
	m.Chat, m.Reread = chat, mode
	f.SetReady(m)
	return f, chat
}

// A request that ends by itself after a call ends with tool_calls.
func TestFinishToolCalls(t *testing.T) {
	f, _ := startTools(t, RereadOff)
	const call = `<tool_call>{"name": "get", "arguments": {"a": 1}}</tool_call>.`
	stopped := asking(call, 100)
	stopped.Stop = []string{"."}
	broken := asking(`<tool_call>{"name": "get", "arguments": {"a": 1.`, 100)
	broken.Stop = []string{"."}
	only := asking(call, 100)
	only.ParallelToolCalls = new(false)
	for name, c := range map[string]struct {
		g      *protocol.Generate
		reason string
		calls  int
	}{
		"stopped": {stopped, protocol.FinishToolCalls, 1}, "no call": {broken, protocol.FinishStop, 1},
		"one call": {only, protocol.FinishToolCalls, 1}, "length": {asking(call, len(call)+20), protocol.FinishLength, 1},
	} {
		got := f.client().ask(c.g)
		made := map[int]string{}
		for _, token := range got.tokens {
			for _, p := range token.Calls {
				made[p.Index] += p.ID + p.Name + p.Arguments
			}
		}
		if got.done == nil || got.done.FinishReason != c.reason || len(made) != c.calls || !strings.Contains(made[0],
			`get{"a": 1`) {
			t.Fatalf("%s: %+v, %v, calls %v", name, got.done, got.err, made)
		}
		if got.done.Usage.CompletionTokens != len(got.tokens) || strings.Contains(got.text, "tool_call") && name != "length" {
			t.Errorf("%s: %d tokens, %+v, %q", name, len(got.tokens), got.done.Usage, got.text)
		}
	}
	if live, _ := f.engine.counts(); live != 0 {
		t.Error("the engine goes on")
	}
}

// Tools reach the template unless tool_choice is none. A template that shows none, and a call that is required, are
// refused.
func TestToolsInTemplates(t *testing.T) {
	f, chat := startTools(t, RereadOff)
	none := asking("hi", 2)
	none.ToolChoice = new(protocol.ToolNone)
	for _, c := range []struct {
		g    *protocol.Generate
		want string
	}{{asking("hi", 2), toolGet}, {none, ""}} {
		if got := f.client().ask(c.g); got.err != nil || chat.tools() != c.want {
			t.Errorf("%v, tools %q", got.err, chat.tools())
		}
	}
	required, named := asking("hi", 2), asking("hi", 2)
	required.ToolChoice, named.ToolName = new(protocol.ToolRequired), new("get")
	for _, g := range []*protocol.Generate{required, named} {
		if got := f.client().ask(g); got.err == nil || got.err.Code != protocol.CodeFormatUnavailable {
			t.Errorf("%+v", got.err)
		}
	}
	f.SetChat(&fakeChat{}, nil)
	if got := f.client().ask(asking("hi", 2)); got.err == nil || got.err.Code != protocol.CodeBadRequest {
		t.Errorf("%+v", got.err)
	}
	if got := f.client().ask(none); got.err != nil {
		t.Error(got.err)
	}
}

// A call that is required has a format of the model's form: one of all tools, or of the one that is named. A form
// that is not known is refused.
func TestRequiredCalls(t *testing.T) {
	f, formats, _ := withFormats(t, nil)
	chat := &fakeChat{answers: hermes}
	chat.answers.Control = map[int32]string{7: "<tool_call>"}
	m := f.model()
	m.Chat, m.Formats = chat, formats
	f.SetReady(m)
	f.SetChat(chat, nil)
	const two = `[{"function":{"name":"get","parameters":{"x":1}}},{"function":{"name":"put"}}]`
	required, named := asking("hi", 2), asking("hi", 2)
	required.Tools, required.ToolChoice = new(two), new(protocol.ToolRequired)
	named.Tools, named.ToolName = new(two), new("put")
	for name, c := range map[string]struct {
		g        *protocol.Generate
		has, not string
	}{
		"required": {required, `"schema":{"x":1}`, `"between":null`},
		"named":    {named, `"between":null`, `"schema":{"x":1}`},
	} {
		got := f.client().ask(c.g)
		text, _ := formats.calls.Load().(string)
		if got.done == nil || !strings.Contains(text, c.has) || strings.Contains(text, c.not) || !strings.HasSuffix(text,
			" 7]") && !strings.HasSuffix(text, "[7]") {
			t.Errorf("%s: %v, the form is %s", name, got.err, text)
		}
	}
	other := &fakeChat{answers: hermes}
	other.answers.Form.Family = calls.None
	f.SetChat(other, nil)
	if got := f.client().ask(required); got.err == nil || got.err.Code != protocol.CodeFormatUnavailable {
		t.Errorf("%+v", got.err)
	}
	if formats.open.Load() != 0 {
		t.Error("a format stays open")
	}
}

// For random tokens each token is sent once and in order with valid UTF-8, and together they have what the whole text
// has in one token.
func TestDividedAgainstWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	parts := []string{"<think>", "</think>", "<tool_call>", "</tool_call>", `{"name": "get", "arguments": {`, `"é€": "x"`, "}}", "}",
		"{", "\n", " ", "€", "a<", `{"name": "no"`, `{"arguments": {}, "name": "get"}`, "END", "E", "<function=get>",
		"</function>", "<parameter=é>", "</parameter>", "get", "<arg_key>\"", "</arg_key>", "<arg_value>", "</arg_value>"}
	for range 5_000 {
		hermes := hermes
		hermes.Form.Family = []calls.Family{calls.Tagged, calls.Coder, calls.GLM}[rng.IntN(3)]
		text := ""
		for range rng.IntN(10) {
			text += parts[rng.IntN(len(parts))]
		}
		g := asking("", 1)
		if rng.IntN(2) == 0 {
			g.Stop = []string{"END"}
		}
		if rng.IntN(4) == 0 {
			g.Format = &protocol.Format{JSON: true}
		}
		pieces := split(rng, text)
		lines, _, _ := divided(hermes, g, pieces...)
		whole, _, _ := divided(hermes, g, text)
		var got, want [3]string
		for _, list := range []struct {
			to    *[3]string
			lines []string
		}{{&got, lines}, {&want, whole}} {
			for _, line := range list.lines {
				for i, part := range strings.SplitN(line, "|", 3) {
					list.to[i] += part
				}
				if !utf8.ValidString(line) {
					t.Fatalf("%q is no UTF-8", line)
				}
			}
		}
		if got != want {
			t.Fatalf("%q in pieces %q: %q, whole %q", text, pieces, got, want)
		}
		if len(g.Stop) == 0 && len(lines) != len(pieces) {
			t.Fatalf("%d of %d tokens of %q are sent", len(lines), len(pieces), pieces)
		}
	}
}
