package gateway

import (
	"net/http"
	"strings"
	"testing"

	"reel.internal/reel/client/gateway/internal/plays"
	"reel.internal/reel/protocol"
)

// TestLongPromptHasOpenAIsWords: programs know by code or words that a prompt has to be shorter.
func TestLongPromptHasOpenAIsWords(t *testing.T) {
	s := serveFake(t, plays.Script("scripted"))
	status, body := s.post("/v1/chat/completions",
		`{"model": "scripted", "messages": [{"role": "user", "content": "refuse `+protocol.CodePromptTooLong+`"}]}`)
	if status != http.StatusBadRequest || !strings.Contains(body, `"code":"context_length_exceeded"`) ||
		!strings.Contains(body, "this model's maximum context length is exceeded: as it was asked") {
		t.Errorf("%d %s", status, body)
	}
}
