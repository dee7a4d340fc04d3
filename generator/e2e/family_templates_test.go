//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/tiny"
)

// turns are a family's prompt before the first answer, and what the second prompt adds to it: % stands for the first
// answer, and $ for that without white space at its ends.
type turns struct{ first, between string }

// familyTurns are the prompts of "Speak." and then "More!" after the system message "Be terse.", in the form that the
// families' models have learnt to read.
var familyTurns = map[string]turns{
	"gemma3": {"<|begin_of_text|><start_of_turn>user\nBe terse.\n\nSpeak.<end_of_turn>\n<start_of_turn>model\n",
		"$<end_of_turn>\n<start_of_turn>user\nMore!<end_of_turn>\n<start_of_turn>model\n"},
	"glm4.0414": {"[gMASK]<sop><|system|>\nBe terse.<|user|>\nSpeak.<|assistant|>",
		"\n%<|user|>\nMore!<|assistant|>"},
	"granite4": {"<|start_of_role|>system<|end_of_role|>Be terse.<|end_of_text|>\n" +
		"<|start_of_role|>user<|end_of_role|>Speak.<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
		"%<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>More!<|end_of_text|>\n" +
			"<|start_of_role|>assistant<|end_of_role|>"},
	"olmo2": {"<|begin_of_text|><|system|>\nBe terse.\n<|user|>\nSpeak.\n<|assistant|>\n",
		"%<|end_of_text|>\n<|user|>\nMore!\n<|assistant|>\n"},
	"deepseek2": {"<|begin_of_text|>Be terse.\n\nUser: Speak.\n\nAssistant:",
		" %<|end_of_text|>User: More!\n\nAssistant:"},
}

// Each family's template, in a checkpoint's tokenizer_config.json, gives reel chat the prompts of the family's form.
// internal/jinja compares the same templates with Jinja2.
func TestChatInForms(t *testing.T) {
	t.Parallel()
	for family, want := range familyTurns {
		t.Run(family, func(t *testing.T) {
			g := serve(t, "--model", familyCheckpoint(t, family))
			ask := func(prompt string) string {
				return g.reel("--raw", "--temperature", "0", "--max-tokens", "8", prompt).run(0)
			}
			first := ask(want.first)
			answer := strings.TrimSuffix(first, "\n")
			between := strings.NewReplacer("%", answer, "$", strings.TrimSpace(answer)).Replace(want.between)
			chat := input(g.reel("chat", "--system", "Be terse.", "--temperature", "0", "--max-tokens", "8"),
				"Speak.\nMore!\n").run(0)
			if wanted := line(first) + line(ask(want.first+between)); chat != wanted {
				t.Errorf("the chat is %q, want %q", chat, wanted)
			}
		})
	}
}

// familyCheckpoint returns a folder with the small model, a family's template, and a tokenizer that adds no token to a
// raw prompt, so that one can be any template's text.
func familyCheckpoint(t *testing.T, family string) string {
	t.Helper()
	dir := filepath.Join(tempDir(t), family)
	must(t, os.CopyFS(dir, tiny.Files))
	template, err := os.ReadFile(filepath.Join("..", "internal", "jinja", "testdata", "families", family+".jinja"))
	must(t, err)
	writeJSON(t, filepath.Join(dir, "tokenizer_config.json"), map[string]string{
		"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "chat_template": string(template)})
	path := filepath.Join(dir, "tokenizer.json")
	raw, err := os.ReadFile(path)
	must(t, err)
	var fields map[string]json.RawMessage
	must(t, json.Unmarshal(raw, &fields))
	fields["post_processor"] = nil
	writeJSON(t, path, fields)
	return dir
}

// writeJSON writes a value to a file.
func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	must(t, err)
	must(t, os.WriteFile(path, data, 0o600))
}
