//go:build linux && formats

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// called returns the calls of a completion, joined, and its text.
func called(r result) (calls []protocol.ToolCall, text string) {
	for _, t := range r.Tokens {
		text += t.Text
		for _, p := range t.Calls {
			if p.Name != "" {
				calls = append(calls, protocol.ToolCall{ID: p.ID, Name: p.Name})
			}
			calls[len(calls)-1].Arguments += p.Arguments
		}
	}
	return calls, text
}

// A model that has to call a tool does, in the form of its template's family, whatever it would rather say: the
// arguments
// are of the tool's schema, the request ends with tool_calls, and the same request gives the same calls.
func TestFormatsOfRequiredCalls(t *testing.T) {
	const tools = `[{"type": "function", "function": {"name": "fly", "parameters": {"type": "object", "properties": ` +
		`{"to": {"enum": ["Rome", "Verona"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ` +
		`["to", "n"], ` +
		`"additionalProperties": false}}}, {"type": "function", "function": {"name": "wait", "parameters": {"type":` +
		` "object", ` +
		`"properties": {}, "additionalProperties": false}}}]`
	for family, shows := range map[string]string{
		"hermes":       `<tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call>`,
		"llama":        `{"name": function name, "parameters": dictionary of argument name and its value}`,
		"mistral":      "[TOOL_CALLS]",
		"mistral, new": "[TOOL_CALLS][ARGS]",
		"gemma":        "<|tool_call>call:",
		"granite 3":    "<|tool_call|>",
		"glm 0414":     "{# 'observation' metadata #}",
		"deepseek":     "<｜tool▁calls▁begin｜><｜tool▁sep｜>```json",
	} {
		path := filepath.Join(tempDir(t), "template")
		must(t, os.WriteFile(path,
			[]byte("{% if tools %}"+shows+"{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"), 0o600))
		c := serveFormats(t, "--chat-template", path).client()
		for seed := range uint64(6) {
			request := client.Request{
				Messages: []client.Message{{Role: "user", Content: "JULIET:\n"}}, MaxTokens: new(300), Seed: &seed,
				Tools: tools, ToolChoice: protocol.ToolRequired, ParallelToolCalls: new(false),
			}
			names := []string{"fly", "wait"}
			if seed%2 == 1 {
				request.ToolChoice, request.ToolName, names = "", "fly", names[:1]
			}
			r := ask(c, request)
			calls, text := called(r)
			if err := checkCalls(calls, names); err != nil || text != "" || r.Reason != protocol.FinishToolCalls {
				t.Errorf("%s, seed %d: %v, %+v, %q, %s %s", family, seed, err, calls, text, r.Reason, r.Err)
			}
			if again, _ := called(ask(c, request)); !slices.Equal(again, calls) {
				t.Errorf("%s, seed %d: %+v, then %+v", family, seed, calls, again)
			}
		}
	}
}

// checkCalls checks that there is one call of one of the tools, with its arguments.
func checkCalls(calls []protocol.ToolCall, names []string) error {
	if len(calls) != 1 || !slices.Contains(names, calls[0].Name) {
		return fmt.Errorf("there are %d calls", len(calls))
	}
	var arguments struct {
		To string
		N  int
	}
	err := json.Unmarshal([]byte(calls[0].Arguments), &arguments)
	if flies := calls[0].Name == "fly"; err == nil && flies != (arguments.N > 0 && arguments.N < 10 &&
		arguments.To != "") {
		err = fmt.Errorf("the arguments are %s", calls[0].Arguments)
	}
	return err
}
