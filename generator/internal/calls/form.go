// Package calls finds a model's reasoning and its calls of tools in a completion's text while it streams. A chat
// template shows in which form a model writes them.
package calls

import (
	"maps"
	"slices"
	"strings"
)

// Family is a form in which models write calls.
type Family int

// The families.
const (
	// None: the template shows no form that this package knows. Calls stay text.
	None Family = iota
	// Tagged is the form of Hermes and Qwen: <tool_call>{"name": …, "arguments": {…}}</tool_call>.
	Tagged
	// Bare is the form of Llama 3: {"name": …, "parameters": {…}} at the beginning, or after <|python_tag|>.
	Bare
	// Mistral is [TOOL_CALLS][{"name": …, "arguments": {…}}], and the newer [TOOL_CALLS]name[ARGS]{…}.
	Mistral
	// Coder is the form of Qwen3-Coder: <tool_call><function=f><parameter=a>…</parameter></function></tool_call>.
	Coder
	// GLM is the form of GLM since 4.5: <tool_call>f<arg_key>a</arg_key><arg_value>…</arg_value></tool_call>.
	GLM
	// Piped is the form of Granite 3 and Phi-4-mini: <|tool_call|>[{"name": …, "arguments": {…}}]. The latter writes
	// <|/tool_call|> after the list.
	Piped
	// Lined is the form of GLM-4 0414: a line with the tool's name, then {…}, and no text before them.
	Lined
	// DeepSeek is the form of DeepSeek: <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…, or
	// with a type before the name and a fence around the arguments: function<｜tool▁sep｜>f```json{…}```.
	DeepSeek
	// Gemma is the form of Gemma 4: <|tool_call>call:f{a:<|"|>…<|"|>,b:3}<tool_call|>. Reasoning has a title; see
	// [Form.Title].
	Gemma
	// Channelled is the form of gpt-oss: a message to a function, <|channel|>commentary to=functions.f
	// <|constrain|>json<|message|>{…}<|call|>. It has no reasoning tags; see [Form.Channels].
	Channelled
)

// Markers around calls.
const (
	callBegin = "<tool_call>"
	callEnd   = "</tool_call>"
	pythonTag = "<|python_tag|>"
	toolCalls = "[TOOL_CALLS]"
	idMark    = "[CALL_ID]"
	argsMark  = "[ARGS]"
	pipeBegin = "<|tool_call|>"
	pipeEnd   = "<|/tool_call|>"
	pipeTools = "<|/tool|>" // behind the tools of Phi-4-mini

	functionBegin, functionEnd   = "<function=", "</function>"
	parameterBegin, parameterEnd = "<parameter=", "</parameter>"
	keyBegin, keyEnd             = "<arg_key>", "</arg_key>"
	valueOpen, valueClose        = "<arg_value>", "</arg_value>"
)

// markers are the texts by which a family delimits calls.
var markers = map[Family][]string{
	Tagged:  {callBegin, callEnd},
	Bare:    {pythonTag},
	Mistral: {toolCalls, idMark, argsMark},
	Coder:   {callBegin, callEnd, functionBegin, functionEnd, parameterBegin, parameterEnd},
	GLM:     {callBegin, callEnd, keyBegin, keyEnd, valueOpen, valueClose},
	Piped:   {pipeBegin, pipeEnd},

	DeepSeek: {callsBegin, callsEnd, oneBegin, oneEnd, separator, fenceEnd},
	Gemma:    {pairsBegin, pairsEnd, quoteMark, resultBegin},
}

// reasoningTags are the known tags around reasoning: before it, and after it.
var reasoningTags = [][2]string{
	{"<think>", "</think>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"},
	{"<|START_THINKING|>", "<|END_THINKING|>"}, {thoughtBegin, "<channel|>"},
}

// Gemma 4's reasoning is a channel, whose title is its first line.
const (
	thoughtBegin = "<|channel>"
	thoughtTitle = "thought"
)

// Form says how a model writes its reasoning and its calls. The zero Form has neither.
type Form struct {
	Family Family
	// Tools: the template shows tools to the model.
	Tools bool
	// List: a call of the family [Mistral] or [Piped] is an object in a list.
	List bool
	// Fenced: a call of the family [DeepSeek] has its type, and a fence around its arguments.
	Fenced bool
	// Channels: a completion is messages in channels, as gpt-oss writes them between control tokens. One channel has
	// reasoning.
	Channels bool
	// Begin and End are the tags around reasoning; empty without reasoning.
	Begin, End string
	// Title is the first line of reasoning, without its line feed, if it belongs to the tag before it. Such a model may
	// reason again after it has begun its answer.
	Title string
}

// FormOf returns the form that a chat template shows.
func FormOf(template string) Form {
	has := func(s string) bool { return strings.Contains(template, s) }
	f := Form{Tools: has("tools"), Family: familyOf(has)}
	if f.Channels = has(startMark) && has(channelMark) && has(messageMark); f.Channels {
		if f.Family = None; f.Tools {
			f.Family = Channelled
		}
		return f
	}
	f.List = f.Family == Mistral && !has(argsMark) || f.Family == Piped
	f.Fenced = f.Family == DeepSeek && has(fenceBegin)
	for _, tags := range reasoningTags {
		if has(tags[1]) {
			f.Begin, f.End = tags[0], tags[1]
			break
		}
	}
	if f.Begin == thoughtBegin {
		f.Title = thoughtTitle
	}
	return f
}

// familyOf returns the family of the template that has some strings. Some templates have the tags of [Tagged] around
// other JSON.
func familyOf(has func(string) bool) Family {
	switch {
	case !has("tools"):
	case has(toolCalls):
		return Mistral
	case has(callsBegin) && has(separator):
		return DeepSeek
	case has(pairsBegin) && has(callWord):
		return Gemma
	case has(callBegin) && has(functionBegin) && has(parameterBegin):
		return Coder
	case has(callBegin) && has(keyBegin) && has(valueOpen):
		return GLM
	case has(callBegin) && has("arguments") && !has(functionBegin) && !has(keyBegin):
		return Tagged
	case has(pipeBegin), has(pipeTools):
		return Piped
	case observes(has):
		return Lined
	case has(`{"name": function name, "parameters"`), has(pythonTag) && has(`"parameters": `):
		return Bare
	}
	return None
}

// Observes reports whether a template has results as messages of the role observation alone, and calls as messages with
// metadata, as that of GLM-4 0414 does. It leaves out messages of the role tool without an error.
func Observes(template string) bool {
	return observes(func(s string) bool { return strings.Contains(template, s) })
}

func observes(has func(string) bool) bool {
	return has("'observation'") && has("metadata") && !has("'tool'") && !has("tool_calls")
}

// Reasons reports whether a completion may have reasoning.
func (f Form) Reasons() bool { return f.End != "" || f.Channels }

// With returns the form in a vocabulary with these control tokens: without those of the form Channels there are no
// channels.
func (f Form) With(control map[int32]string) Form {
	for _, m := range channelMarks {
		if f.Channels && !slices.Contains(slices.Collect(maps.Values(control)), m) {
			return Form{Tools: f.Tools}
		}
	}
	return f
}

// Markers returns the texts that delimit reasoning and calls. Some vocabularies have control tokens for them.
func (f Form) Markers() []string {
	if f.Channels {
		return channelMarks
	}
	all := markers[f.Family]
	if f.End != "" {
		all = append([]string{f.Begin, f.End}, all...)
	}
	return all
}
