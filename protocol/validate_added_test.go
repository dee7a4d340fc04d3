package protocol

import (
	"math"
	"strings"
	"testing"
)

const twoTools = `[{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}]`

func presence(v float64) func(*Generate)  { return func(g *Generate) { g.PresencePenalty = &v } }
func frequency(v float64) func(*Generate) { return func(g *Generate) { g.FrequencyPenalty = &v } }
func bias(b ...Bias) func(*Generate)      { return func(g *Generate) { g.LogitBias = b } }
func user(name string) func(*Generate)    { return func(g *Generate) { g.User = &name } }
func format(f Format) func(*Generate)     { return func(g *Generate) { g.Format = &f } }
func reasoning(v string) func(*Generate)  { return func(g *Generate) { g.Reasoning = &v } }

func draft(d Draft) func(*Generate)           { return func(g *Generate) { g.Draft = &d } }
func prediction(ids ...int32) func(*Generate) { return func(g *Generate) { g.Prediction = ids } }

// tools sets tools and messages, then calls also.
func tools(text string, also ...func(*Generate)) func(*Generate) {
	return func(g *Generate) {
		messages(Message{Role: "user", Content: "a"})(g)
		g.Tools = &text
		for _, f := range also {
			f(g)
		}
	}
}

func choose(v string) func(*Generate)   { return func(g *Generate) { g.ToolChoice = &v } }
func toolName(v string) func(*Generate) { return func(g *Generate) { g.ToolName = &v } }

// calls returns a conversation with one call.
func calls(c ToolCall) func(*Generate) {
	return messages(Message{Role: "assistant", ToolCalls: []ToolCall{c}})
}

// biases returns n biases of tokens that differ.
func biases(n int) []Bias {
	list := make([]Bias, n)
	for i := range list {
		list[i].Token = int32(i)
	}
	return list
}

// nestedJSON returns lists in lists, n deep.
func nestedJSON(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

var addedChanges = []change{
	{"penalties at their bounds", presence(-2), "", ""},
	{"penalties at their bounds", frequency(2), "", ""},
	{"presence above", presence(2.5), CodeBadRequest, "presence_penalty is 2.5: it must be -2 to 2"},
	{"presence NaN", presence(math.NaN()), CodeBadRequest, "presence_penalty is NaN"},
	{"frequency below", frequency(-2.1), CodeBadRequest, "frequency_penalty is -2.1"},
	{"biases at their bounds", bias(Bias{0, -100}, Bias{4095, 100}), "", ""},
	{"1024 biases", bias(biases(1024)...), "", ""},
	{"1025 biases", bias(biases(1025)...), CodeBadRequest, "logit_bias has 1025 tokens"},
	{"a bias of no token", bias(Bias{4096, 0}), CodeBadRequest, "logit_bias[0].token is 4096"},
	{"a bias of a negative token", bias(Bias{-1, 0}), CodeBadRequest, "logit_bias[0].token is -1"},
	{"a bias above", bias(Bias{1, 101}), CodeBadRequest, "logit_bias[0].bias is 101"},
	{"a bias NaN", bias(Bias{1, math.NaN()}), CodeBadRequest, "logit_bias[0].bias is NaN"},
	{"two biases of a token", bias(Bias{1, 0}, Bias{1, 1}), CodeBadRequest, "logit_bias has token 1 twice"},
	{"no name of a user", user(""), "", ""},
	{"a user at the bound", user(strings.Repeat("u", 64)), "", ""},
	{"a long user", user(strings.Repeat("u", 65)), CodeBadRequest, "user has 65 bytes"},

	{"a JSON object", format(Format{JSON: true}), "", ""},
	{"a schema", format(Format{JSONSchema: `{"type": "string"}`}), "", ""},
	{"a schema that is not JSON", format(Format{JSONSchema: `{"type": `}), CodeBadRequest, "format.json_schema is not JSON"},
	{"a long schema", format(Format{JSONSchema: `"` + strings.Repeat("a", MaxJSONBytes) + `"`}),
		CodeBadRequest, "format.json_schema has 262146 bytes"},
	{"a schema 128 deep", format(Format{JSONSchema: nestedJSON(128)}), "", ""},
	{"a schema 129 deep", format(Format{JSONSchema: nestedJSON(129)}), CodeBadRequest, "nested more than 128 deep"},
	{"brackets in a string", format(Format{JSONSchema: `"\"` + strings.Repeat("[", 200) + `"`}), "", ""},
	{"a regex", format(Format{Regex: "a+"}), "", ""},
	{"a long regex", format(Format{Regex: strings.Repeat("a", MaxRegexBytes+1)}), CodeBadRequest, "format.regex has 65537"},
	{"a choice", format(Format{Choice: []string{"a", "b"}}), "", ""},
	{"an empty choice", format(Format{Choice: []string{"a", ""}}), CodeBadRequest, "format.choice[1] is empty"},
	{"1025 choices", format(Format{Choice: strings.Fields(strings.Repeat("a ", 1025))}),
		CodeBadRequest, "format.choice has 1025 texts"},
	{"long choices", format(Format{Choice: []string{strings.Repeat("a", MaxChoiceBytes), "b"}}),
		CodeBadRequest, "format.choice has 65537 bytes"},
	{"no form", format(Format{}), CodeBadRequest, "format has 0 forms"},
	{"two forms", format(Format{JSON: true, Regex: "a"}), CodeBadRequest, "format has 2 forms"},
	{"a format without an end", func(g *Generate) { format(Format{JSON: true})(g); g.IgnoreEOS = true },
		CodeBadRequest, "ignore_eos and format"},

	{"tools", tools(twoTools), "", ""},
	{"tools that may not be called", tools(twoTools, choose("none")), "", ""},
	{"tools of which one must be called", tools(twoTools, toolName("b")), "", ""},
	{"no such choice", tools(twoTools, choose("b")), CodeBadRequest, `tool_choice is "b"`},
	{"no such tool", tools(twoTools, toolName("c")), CodeBadRequest, `tool_name is "c", which is no tool`},
	{"a choice and a name", tools(twoTools, choose("auto"), toolName("a")),
		CodeBadRequest, "tool_choice and tool_name are given together"},
	{"a choice without tools", choose("auto"), CodeBadRequest, "given without tools"},
	{"a name without tools", toolName("a"), CodeBadRequest, "given without tools"},
	{"parallel calls without tools", func(g *Generate) { g.ParallelToolCalls = ptr(true) },
		CodeBadRequest, "given without tools"},
	{"tools for a prompt", func(g *Generate) { g.Tools = ptr(twoTools) }, CodeBadRequest, "tools are given without messages"},
	{"tools that are no list", tools(`{"name": "a"}`), CodeBadRequest, "tools is no list of tools"},
	{"tools that are not JSON", tools(`[`), CodeBadRequest, "tools is not JSON"},
	{"a tool without a name", tools(`[{"type": "function"}]`), CodeBadRequest, "tools[0] has a name of 0 bytes"},
	{"two tools of a name", tools(`[{"function": {"name": "a"}}, {"function": {"name": "a"}}]`),
		CodeBadRequest, `two tools of the name "a"`},
	{"a format and tools", tools(twoTools, format(Format{JSON: true})), "", ""},
	{"a format and a call", tools(twoTools, format(Format{JSON: true}), choose("required")),
		CodeBadRequest, "a format and a call that is required"},
	{"a format and a tool", tools(twoTools, format(Format{JSON: true}), toolName("a")),
		CodeBadRequest, "a format and a call that is required"},
	{"reasoning apart", reasoning("apart"), "", ""},
	{"no such reasoning", reasoning("off"), CodeBadRequest, `reasoning is "off"`},

	{"drafts", draft(Draft{Word: "on"}), "", ""},
	{"no drafts", draft(Draft{Word: "off"}), "", ""},
	{"0 drafts", draft(Draft{}), "", ""},
	{"7 drafts", draft(Draft{Tokens: 7}), "", ""},
	{"8 drafts", draft(Draft{Tokens: 8}), CodeBadRequest, `draft is "8": it must be on, off or a number, 0 to 7`},
	{"less than no drafts", draft(Draft{Tokens: -1}), CodeBadRequest, `draft is "-1"`},
	{"no such word", draft(Draft{Word: "lookup"}), CodeBadRequest, `draft is "lookup"`},
	{"a prediction", prediction(0, 4095), "", ""},
	{"a prediction of the whole context", prediction(make([]int32, 512)...), "", ""},
	{"a long prediction", prediction(make([]int32, 513)...), CodeBadRequest,
		"the number of tokens of prediction is 513: it must be 0 to 512"},
	{"a prediction of no token", prediction(1, 4096), CodeBadRequest, "prediction[1] is 4096: it must be 0 to 4095"},
	{"a prediction of a negative token", prediction(-1), CodeBadRequest, "prediction[0] is -1"},

	{"a call", calls(ToolCall{ID: "1", Name: "a", Arguments: "{}"}), "", ""},
	{"a call of nothing", calls(ToolCall{Arguments: "{}"}), CodeBadRequest, "messages[0].tool_calls[0] has a name of 0 bytes"},
	{"a call without arguments", calls(ToolCall{Name: "a"}), CodeBadRequest, "messages[0].tool_calls[0].arguments is not JSON"},
	{"a long call", calls(ToolCall{Name: "a", Arguments: `"` + strings.Repeat("a", 998) + `"`}),
		CodePromptTooLong, "messages has 1001 bytes"},
	{"a long name", messages(Message{Role: "tool", Name: strings.Repeat("n", 257)}),
		CodeBadRequest, "messages[0].name has 257 bytes"},
	{"a long id of a call", messages(Message{Role: "tool", ToolCallID: strings.Repeat("n", 257)}),
		CodeBadRequest, "messages[0].tool_call_id has 257 bytes"},
	{"much reasoning", messages(Message{Role: "a", Reasoning: strings.Repeat("r", 1001)}),
		CodePromptTooLong, "messages has 1001 bytes"},
}

func TestValidateAddedFields(t *testing.T) { testChanges(t, addedChanges) }
