package gateway

import (
	"net/http"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// TestCountTokens: the generator counts the prompt of a conversation with its tools, and is asked for nothing else: no
// format and no call that it would have to prepare for.
func TestCountTokens(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Chat: true, Tools: true, Ending: fakegen.Hang})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	for path, c := range map[string][2]string{
		"/v1/messages/count_tokens": {
			`{"system":"x","messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}],` +
				`"tool_choice":{"type":"tool","name":"f"}}`,
			`{"input_tokens":3}`},
		"/v1/responses/input_tokens": {
			`{"instructions":"x","input":"hi","tools":[{"type":"function","name":"f","parameters":{}}],` +
				`"tool_choice":"required","text":{"format":{"type":"json_object"}}}`,
			`{"input_tokens":3,"object":"response.input_tokens"}`},
	} {
		status, body := s.post(path, c[0])
		m := lastRequest(t, g)
		if status != http.StatusOK || body != c[1]+"\n" {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if !m.Count || *m.MaxTokens != 1 || m.Tools == nil || m.ToolChoice != nil || m.ToolName != nil || m.Format != nil ||
			len(m.Messages) != 2 {
			t.Errorf("%s: %+v", path, m)
		}
	}
	for path, body := range map[string]string{
		"/v1/messages/count_tokens": `{"messages":[]}`, "/v1/responses/input_tokens": `{"input":[]}`,
	} {
		if status, answer := s.post(path, body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	wrong := `{"messages":[{"role":"user","content":"hi"}],"temperature":"hot"}`
	if _, answer := s.post("/v1/messages/count_tokens", wrong); !strings.Contains(answer, `"message":"temperature: `) {
		t.Errorf("a field of another type: %s", answer)
	}
	s = serveFake(t, fakegen.Script{Chat: true, Long: 1})
	for path, body := range map[string]string{
		"/v1/messages/count_tokens": someMessage, "/v1/responses/input_tokens": someResponse,
	} {
		if status, answer := s.post(path, body); status != http.StatusBadRequest {
			t.Errorf("%s: %s: %d %s", protocol.CodePromptTooLong, path, status, answer)
		}
	}
}
