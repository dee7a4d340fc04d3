//go:build linux && formats

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// reasoningOf returns the reasoning of a completion.
func reasoningOf(r result) (text string) {
	for _, t := range r.Tokens {
		text += t.Reasoning
	}
	return text
}

// Where the template begins reasoning, a format does not bound it: max_tokens ends the thoughts of a model that does
// not stop thinking, and none of them is in the text. Where the template ends reasoning, the format begins at once, and
// where the model may write some, the text is of the format all the same.
func TestFormatsAfterReasoning(t *testing.T) {
	for _, c := range []struct {
		end, text, reason string
	}{
		{"{# </think> #}<think>\n", "", protocol.FinishLength}, {"<think>\n\n</think>\n\n", "Romeo", protocol.FinishStop},
		{"{# </think> #}", "Romeo", protocol.FinishStop},
	} {
		path := filepath.Join(tempDir(t), "template")
		must(t, os.WriteFile(path, []byte("{% for m in messages %}{{ m.content }}{% endfor %}"+c.end), 0o600))
		asks := serveFormats(t, "--chat-template", path).client()
		r := ask(asks, client.Request{
			Messages: []client.Message{{Role: "user", Content: "JULIET:\n"}}, MaxTokens: new(40), Seed: new(uint64(3)),
			Format: &protocol.Format{Choice: []string{"Romeo"}},
		})
		thoughts := reasoningOf(r)
		if got := text(r); got != c.text || r.Reason != c.reason || (thoughts != "") != (c.text == "") {
			t.Errorf("%q: %q after %q, %s %s", c.end, got, thoughts, r.Reason, r.Err)
		}
	}
}
