package gateway

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

const (
	someMessage     = `{"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	streamedMessage = `{"stream":true,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
)

// messageOf returns the object of an answer.
func messageOf(content, reason, usage string) string {
	return `{"id":"msg_0","type":"message","role":"assistant","model":"fake","content":[` + content +
		`],"stop_reason":` + reason + `,"stop_sequence":null,"usage":` + usage + `}`
}

// The usage in the first event of an answer and in its last: the stand-in generator reports two cached tokens.
const (
	noUsage = `{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}`
	inUse   = `{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":5}`
)

// TestAnthropicMessage: reasoning, text and calls of tools are blocks of an answer, which counts its tokens.
func TestAnthropicMessage(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/messages", someMessage)
	want := messageOf(`{"type":"thinking","thinking":"hm","signature":"reel"},{"type":"text","text":"<b>é"},`+
		`{"type":"tool_use","id":"c0","name":"f","input":{"a":1}},{"type":"tool_use","id":"c1","name":"g","input":{}}`,
		`"tool_use"`, inUse) + "\n"
	if got := undrawn(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// TestAnthropicStream: each block begins, grows and ends in events, and the usage comes at the end.
func TestAnthropicStream(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/messages", streamedMessage)
	want := sse(false,
		`message_start "message":`+messageOf("", "null", noUsage),
		`content_block_start "index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`,
		`content_block_delta "index":0,"delta":{"type":"thinking_delta","thinking":"hm"}`,
		`content_block_delta "index":0,"delta":{"type":"signature_delta","signature":"reel"}`,
		`content_block_stop "index":0`,
		`content_block_start "index":1,"content_block":{"type":"text","text":""}`,
		`content_block_delta "index":1,"delta":{"type":"text_delta","text":"<b>é"}`,
		`content_block_stop "index":1`,
		`content_block_start "index":2,"content_block":{"type":"tool_use","id":"c0","name":"f","input":{}}`,
		`content_block_delta "index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}`,
		`content_block_delta "index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}`,
		`content_block_stop "index":2`,
		`content_block_start "index":3,"content_block":{"type":"tool_use","id":"c1","name":"g","input":{}}`,
		`content_block_delta "index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}`,
		`content_block_stop "index":3`,
		`message_delta "delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":`+inUse,
		`message_stop`,
	)
	if got := undrawn(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// TestOmittedThinking: thinking that is not to be shown leaves a block without text.
func TestOmittedThinking(t *testing.T) {
	s := serveFake(t, thinker)
	const ask = `{"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"thinking":{"type":"adaptive","display":"omitted"}`
	for _, end := range []string{"}", `,"stream":true}`} {
		_, body := s.post("/v1/messages", ask+end)
		if !strings.Contains(body, `"signature":"reel"`) || !strings.Contains(body, `"thinking":""`) || strings.Contains(body, "hm") {
			t.Errorf("%s", body)
		}
	}
}

// ending is a stand-in whose answer ends as done says.
func ending(pieces []fakegen.Piece, change func(*protocol.Done)) fakegen.Script {
	return fakegen.Script{Chat: true, Tokens: pieces, Spoil: func(reply any) {
		if m, ok := reply.(*protocol.Done); ok {
			change(m)
		}
	}}
}

// TestStopReasons: Anthropic's reasons tell a stop sequence from the model's own end, and max_tokens from a full
// context. A call that was cut is left out, as its input is no object.
func TestStopReasons(t *testing.T) {
	text := []fakegen.Piece{{Text: "a"}}
	call := []fakegen.Piece{{Text: "a"}, {Call: &protocol.CallPiece{ID: "c", Name: "f", Arguments: `{"a`}}}
	length := func(tokens int) func(*protocol.Done) {
		return func(d *protocol.Done) { d.FinishReason, d.Usage.CompletionTokens = protocol.FinishLength, tokens }
	}
	for name, c := range map[string]struct {
		script fakegen.Script
		want   string
	}{
		"its own end":   {ending(text, func(*protocol.Done) {}), `"stop_reason":"end_turn","stop_sequence":null`},
		"max_tokens":    {ending(text, length(9)), `"stop_reason":"max_tokens","stop_sequence":null`},
		"full context":  {ending(text, length(8)), `"stop_reason":"model_context_window_exceeded","stop_sequence":null`},
		"stop sequence": {ending(text, func(d *protocol.Done) { d.Stop = "END" }), `"stop_reason":"stop_sequence","stop_sequence":"END"`},
		"a cut call":    {ending(call, length(9)), `"stop_reason":"max_tokens","stop_sequence":null`},
	} {
		s := serveFake(t, c.script)
		_, whole := s.post("/v1/messages", someMessage)
		_, stream := s.post("/v1/messages", streamedMessage)
		if !strings.Contains(whole, `"content":[{"type":"text","text":"a"}],`+c.want) || !strings.Contains(stream, c.want) {
			t.Errorf("%s: %s\n%s\nwant %s", name, whole, stream, c.want)
		}
	}
}

// TestAnthropicErrors: an error has Anthropic's form and the status of its kind, before an answer and in the middle,
// and also where no request of the API is served.
func TestAnthropicErrors(t *testing.T) {
	for code, want := range map[string]struct {
		status int
		kind   string
	}{
		"bad_request": {400, "invalid_request_error"}, "forbidden": {403, "permission_error"},
		"too_many_requests": {429, "rate_limit_error"}, "device_failed": {503, "overloaded_error"},
		"internal": {500, "api_error"}, "denied": {502, "api_error"}, "prompt_too_long": {400, "invalid_request_error"},
	} {
		script := fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Fail, Error: protocol.Errorf(code, "", "the cause")}
		if code == "too_many_requests" { // which is repeated
			continue
		}
		for _, ask := range []string{someMessage, streamedMessage} {
			status, body := serveFake(t, script).post("/v1/messages", ask)
			if status != want.status || !strings.HasPrefix(body, `{"type":"error","error":{"type":"`+want.kind+`","message":"`) ||
				(code == "prompt_too_long") != strings.Contains(body, `"prompt is too long: `) {
				t.Errorf("%s: %d %s", code, status, body)
			}
		}
		script.Pieces = []string{"a"}
		_, body := serveFake(t, script).post("/v1/messages", streamedMessage)
		if !strings.Contains(body, "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\""+want.kind+`","message":"`) ||
			strings.Contains(body, "message_stop") {
			t.Errorf("%s: %s", code, body)
		}
	}
	s := serveFake(t, fakegen.Script{Chat: true})
	if status, body := s.post("/v1/messages/batches", someMessage); status != 404 ||
		!strings.HasPrefix(body, `{"type":"error","error":{"type":"not_found_error","message":"POST /v1/messages/batches is not`) {
		t.Errorf("%d %s", status, body)
	}
	for version, want := range map[string]int{"2023-06-01": 200, "2026-10-21": 200, "2099-01-01": 400} {
		status, body := s.post("/v1/messages", someMessage, "anthropic-version", version)
		if status != want || (want == 400) != strings.Contains(body, "anthropic-version: want 2023-06-01 or 2026-10-21") {
			t.Errorf("version %s: %d %s", version, status, body)
		}
	}
}

// TestAnthropicKey: the key comes in a header of its own, or as a bearer's, and every answer has an id.
func TestAnthropicKey(t *testing.T) {
	keys, err := parseKeys("first-key-0123456789")
	if err != nil {
		t.Fatal(err)
	}
	_, socket := fake(t, fakegen.Script{Chat: true})
	s := serve(t, Options{Keys: keys, Generators: []Generator{{Socket: socket}}})
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"x-api-key", "first-key-0123456789", 200}, {"Authorization", "Bearer first-key-0123456789", 200},
		{"x-api-key", "first-key-012345678", 401}, {"x-api-key", "", 401}, {"Authorization", "first-key-0123456789", 401},
	} {
		answer, err := http.DefaultClient.Do(s.request("POST", "/v1/messages", someMessage,
			c.header, c.value, "anthropic-version", "2023-06-01"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		form := c.status == 200 || strings.Contains(string(body), `"type":"authentication_error"`)
		if answer.StatusCode != c.status || !form || !strings.HasPrefix(answer.Header.Get("Request-Id"), "req_") {
			t.Errorf("%s: %q: %d %s %v", c.header, c.value, answer.StatusCode, body, answer.Header)
		}
	}
}

// TestAnthropicPings: a silent stream of Anthropic's shows by events that it lives.
func TestAnthropicPings(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Hang})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Ping: 10 * time.Millisecond})
	lines := bufio.NewReader(s.open(t.Context(), "/v1/messages", streamedMessage).Body)
	for range 3 {
		for _, want := range []string{"event: ping\n", "data: {\"type\": \"ping\"}\n", "\n"} {
			if line, err := lines.ReadString('\n'); line != want {
				t.Fatalf("%q, %v", line, err)
			}
		}
	}
}

// TestAnthropicModels: who names a version of Anthropic's API finds the models, and errors, in its form.
func TestAnthropicModels(t *testing.T) {
	s := serveFake(t, fakegen.Script{Model: "one"})
	const model = `{"type":"model","id":"one","display_name":"one","created_at":"`
	_, body := s.get("/v1/models", "anthropic-version", "2026-10-21")
	if !strings.HasPrefix(body, `{"data":[`+model) || !strings.Contains(body, `"has_more":false,"first_id":"one","last_id":"one"}`) {
		t.Errorf("%s", body)
	}
	if _, body := s.get("/v1/models/one", "anthropic-version", "2026-10-21"); !strings.HasPrefix(body, model) {
		t.Errorf("%s", body)
	}
	if _, body := s.get("/v1/models/two", "anthropic-version", "2026-10-21"); !strings.Contains(body, "not_found_error") {
		t.Errorf("%s", body)
	}
	if _, body := s.get("/v1/models"); !strings.Contains(body, `"object":"list"`) {
		t.Errorf("without a version: %s", body)
	}
}
