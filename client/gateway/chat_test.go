package gateway

import (
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// varying are the parts of an answer that differ from one to the next.
var varying = regexp.MustCompile(`"id":"(chatcmpl|cmpl)-[A-Z2-7]{26}"|"created":[0-9]+`)

// plain returns an answer without its varying parts.
func plain(body string) string {
	return varying.ReplaceAllStringFunc(body, func(part string) string {
		name, _, _ := strings.Cut(part, ":")
		return name + ":0"
	})
}

// thinking is a stand-in that thinks, then answers and calls two tools, of which one has its arguments
// in pieces. It shows an identity.
func thinking(reply any) {
	switch m := reply.(type) {
	case *protocol.Welcome:
		m.Identity = "0123456789abcdef0123456789abcdef"
	case *protocol.Done:
		m.FinishReason = protocol.FinishToolCalls
	case *protocol.Token:
		text := m.Text
		switch m.Text = ""; m.Index {
		case 0:
			m.Reasoning = "hm"
		case 1:
			m.Text = text
		case 2:
			m.Calls = []protocol.CallPiece{{Index: 0, ID: "c0", Name: "f"}, {Index: 0, Arguments: `{"a":`}}
		case 3:
			m.Calls = []protocol.CallPiece{
				{Index: 0, Arguments: `1}`}, {Index: 1, ID: "c1", Name: "g", Arguments: `{}`}}
		}
	}
}

var thinker = fakegen.Script{Chat: true, Cached: 2, Pieces: []string{"", "<b>é", "", "", ""}, Spoil: thinking}

// TestChat: reasoning, text and calls of tools are apart in an answer, which counts its tokens.
func TestChat(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/chat/completions", someChat)
	want := `{"id":0,"object":"chat.completion","created":0,"model":"fake",` +
		`"system_fingerprint":"fp_0123456789abcdef","choices":[{"index":0,"message":{"role":"assistant","content":"<b>é","reasoning_content":"hm","reasoning":"hm","tool_calls":[` +
		`{"id":"c0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},` +
		`{"id":"c1","type":"function","function":{"name":"g","arguments":"{}"}}],"refusal":null},` +
		`"logprobs":null,"finish_reason":"tool_calls"}],` +
		`"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}}}` + "\n"
	if got := plain(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// TestChatStream: the role comes first, a call has its id and name once, the usage comes last.
func TestChatStream(t *testing.T) {
	status, body := serveFake(t, thinker).post("/v1/chat/completions",
		`{"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`)
	var want strings.Builder
	for _, rest := range []string{
		`{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null`,
		`{"reasoning_content":"hm","reasoning":"hm"},"logprobs":null,"finish_reason":null}],"usage":null`,
		`{"content":"<b>é"},"logprobs":null,"finish_reason":null}],"usage":null`,
		`{"tool_calls":[{"index":0,"id":"c0","type":"function","function":{"name":"f","arguments":""}},` +
			`{"index":0,"function":{"arguments":"{\"a\":"}}]},"logprobs":null,"finish_reason":null}],"usage":null`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"c1","type":"function",` +
			`"function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":null}],"usage":null`,
		`{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null`,
		`"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8,` +
			`"prompt_tokens_details":{"cached_tokens":2}}`,
	} {
		want.WriteString(`data: {"id":0,"object":"chat.completion.chunk","created":0,"model":"fake",` +
			`"system_fingerprint":"fp_0123456789abcdef","choices":[`)
		if strings.HasPrefix(rest, `"usage"`) {
			want.WriteString(`],` + rest + "}\n\n")
		} else {
			want.WriteString(`{"index":0,"delta":` + rest + "}\n\n")
		}
	}
	want.WriteString("data: [DONE]\n\n")
	if got := plain(body); status != http.StatusOK || got != want.String() {
		t.Errorf("%d\n%s, want\n%s", status, got, want.String())
	}
}

// TestChatLogprobs: each token has its bytes and its alternatives, whole and in chunks.
func TestChatLogprobs(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"é", ""}})
	const body = `{"logprobs":true,"top_logprobs":1,"messages":[{"role":"user","content":"hi"}]`
	const top = `"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]}]}`
	const one = `{"token":"é","logprob":-0.5,"bytes":[195,169],` + top
	const two = `{"token":"","logprob":-0.5,"bytes":[],` + top
	_, whole := s.post("/v1/chat/completions", body+"}")
	if want := `"logprobs":{"content":[` + one + `,` + two + `],"refusal":null}`; !strings.Contains(whole, want) {
		t.Errorf("%s\nhas no %s", whole, want)
	}
	_, chunks := s.post("/v1/chat/completions", body+`,"stream":true}`)
	for _, want := range []string{
		`"delta":{"content":"é"},"logprobs":{"content":[` + one + `],"refusal":null}`,
		`"delta":{},"logprobs":{"content":[` + two + `],"refusal":null}`,
	} {
		if !strings.Contains(chunks, want) {
			t.Errorf("%s\nhas no %s", chunks, want)
		}
	}
}

// TestHostileGenerator: what a generator sends against the protocol ends a request at most.
func TestHostileGenerator(t *testing.T) {
	for _, index := range []int{-1, 1, 1 << 40} {
		s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a"}, Spoil: func(reply any) {
			if m, ok := reply.(*protocol.Token); ok {
				m.Calls = []protocol.CallPiece{{Index: index, Name: "f"}}
			}
		}})
		for _, request := range [][2]string{
			{"/v1/chat/completions", someChat},
			{"/v1/chat/completions", `{"n":2,"messages":[{"role":"user","content":"hi"}]}`},
			{"/v1/responses", someResponse}, {"/v1/messages", someMessage},
		} {
			status, answer := s.post(request[0], request[1])
			if status != http.StatusBadGateway || !strings.Contains(answer, "has not begun") {
				t.Errorf("%s: a call of index %d: %d %s", request[0], index, status, answer)
			}
		}
	}
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a"}, Spoil: func(reply any) {
		if m, ok := reply.(*protocol.Token); ok && m.Logprob != nil {
			*m.Logprob, m.Top[0].Logprob = math.NaN(), math.Inf(-1)
		}
	}})
	_, body := s.post("/v1/chat/completions",
		`{"logprobs":true,"top_logprobs":1,"messages":[{"role":"user","content":"hi"}]}`)
	if strings.Count(body, `"logprob":-9999`) != 2 {
		t.Errorf("log-probabilities that are no numbers: %s", body)
	}
	_, body = s.post("/v1/completions", `{"prompt":"a","logprobs":1}`)
	if !strings.Contains(body, `"token_logprobs":[-9999],"top_logprobs":[{"a":-9999,"x":-9999}]`) {
		t.Errorf("log-probabilities that are no numbers: %s", body)
	}
}

// TestChoices: several choices of a chat have an index each, whole and in chunks, and one prompt.
func TestChoices(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a", "b"}})
	status, body := s.post("/v1/chat/completions", `{"n":3,"messages":[{"role":"user","content":"hi"}]}`)
	for _, want := range []string{`{"index":0,"message":{"role":"assistant","content":"ab"`, `{"index":2,`,
		`"prompt_tokens":3,"completion_tokens":6`} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d %s\nhas no %s", status, body, want)
		}
	}
	status, body = s.post("/v1/chat/completions", `{"n":3,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	for part, want := range map[string]int{
		`{"role":"assistant","content":""}`: 3, `{"content":"a"}`: 3, `"index":1,"delta":{"content":"b"}`: 1,
		`"index":2,"delta":{},"logprobs":null,"finish_reason":"stop"`: 1, "[DONE]": 1,
	} {
		if got := strings.Count(body, part); status != http.StatusOK || got != want {
			t.Errorf("%s is there %d times, want %d: %s", part, got, want, body)
		}
	}
}

// TestCompletions: several prompts with several choices are answered in order; offsets count characters.
func TestCompletions(t *testing.T) {
	s := serveFake(t, fakegen.Script{})
	status, body := s.post("/v1/completions", `{"prompt":["é b","c"],"n":2,"logprobs":2}`)
	choice := func(index, text, tokens, rest string) string {
		return `{"index":` + index + `,"text":"` + text + `","logprobs":{"tokens":[` + tokens + `],` + rest +
			`},"finish_reason":"stop"}`
	}
	const two = `"token_logprobs":[-0.5,-0.5],"top_logprobs":[{"x":-0.5,"é ":-0.5},{"b":-0.5,"x":-0.5}],"text_offset":[0,2]`
	const one = `"token_logprobs":[-0.5],"top_logprobs":[{"c":-0.5,"x":-0.5}],"text_offset":[0]`
	want := `{"id":0,"object":"text_completion","created":0,"model":"fake","choices":[` + strings.Join([]string{
		choice("0", "é b", `"é ","b"`, two), choice("1", "é b", `"é ","b"`, two),
		choice("2", "c", `"c"`, one), choice("3", "c", `"c"`, one)}, ",") +
		`],"usage":{"prompt_tokens":6,"completion_tokens":6,"total_tokens":12,` +
		`"prompt_tokens_details":{"cached_tokens":0}}}` + "\n"
	if got := plain(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
}

// TestCompletionStream: echo comes first, and each chunk has the offset of its token.
func TestCompletionStream(t *testing.T) {
	s := serveFake(t, fakegen.Script{})
	status, body := s.post("/v1/completions", `{"prompt":"é b","stream":true,"echo":true}`)
	const head = `data: {"id":0,"object":"text_completion","created":0,"model":"fake","choices":[{"index":0,"text":`
	const more, end = `,"logprobs":null,"finish_reason":null}]}` + "\n\n", `,"logprobs":null,"finish_reason":"stop"}]}` + "\n\n"
	want := head + `"»"` + more + head + `"é "` + more + head + `"b"` + more + head + `""` + end + "data: [DONE]\n\n"
	if got := plain(body); status != http.StatusOK || got != want {
		t.Errorf("%d\n%s, want\n%s", status, got, want)
	}
	_, body = s.post("/v1/completions", `{"prompt":"é b","stream":true,"logprobs":0}`)
	want = `"logprobs":{"tokens":["b"],"token_logprobs":[-0.5],"top_logprobs":[{"b":-0.5}],"text_offset":[2]}`
	if !strings.Contains(body, want) {
		t.Errorf("%s\nhas no %s", body, want)
	}
}

// TestAcceptedTokens: tokens that a generator guessed are counted as accepted and rejected; without any there is no
// field.
func TestAcceptedTokens(t *testing.T) {
	var u usage
	u.add(&client.Done{Usage: protocol.Usage{PromptTokens: 4, CompletionTokens: 2}}, true)
	if u.Drafts != nil {
		t.Errorf("%+v without drafts", *u.Drafts)
	}
	for range 2 {
		u.add(&client.Done{Usage: protocol.Usage{PromptTokens: 4, CompletionTokens: 9, DraftedTokens: 7, AcceptedTokens: 5}}, false)
	}
	text, err := json.Marshal(u)
	const want = `{"prompt_tokens":4,"completion_tokens":20,"total_tokens":24,"prompt_tokens_details":{"cached_tokens":0},` +
		`"completion_tokens_details":{"accepted_prediction_tokens":10,"rejected_prediction_tokens":4}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
