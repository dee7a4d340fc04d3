package gateway

import (
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// TestTextAfterACall: a token may have the end of a call's arguments and text behind it, as }}. of Llama 3's form.
func TestTextAfterACall(t *testing.T) {
	pieces := []fakegen.Piece{
		{Call: &protocol.CallPiece{Index: 0, ID: "a", Name: "f", Arguments: "{"}},
		{Text: ".", Call: &protocol.CallPiece{Index: 0, Arguments: "}"}},
		{Text: " Then", Call: &protocol.CallPiece{Index: 1, ID: "b", Name: "g", Arguments: "{}"}},
	}
	s := serveFake(t, fakegen.Script{Chat: true, Tools: true, Answer: func(*protocol.Generate) fakegen.Answer {
		return fakegen.Answer{Tokens: slices.Values(pieces)}
	}})
	for path, body := range map[string]string{
		"/v1/messages":  `{"max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"},{"name":"g"}]}`,
		"/v1/responses": `{"input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]}`,
	} {
		status, whole := s.post(path, body)
		_, events := s.post(path, strings.Replace(body, "{", `{"stream":true,`, 1))
		if status != 200 || !strings.Contains(whole, `". Then"`) || strings.Contains(events, "has not begun") {
			t.Errorf("%s: %d %s\n%s", path, status, whole, events)
		}
	}
}
