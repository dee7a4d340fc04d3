package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// beside starts a gateway beside a generator that follows script, and returns its address.
func beside(t *testing.T, script fakegen.Script, change ...func(*Options)) (string, *fakegen.Generator) {
	t.Helper()
	g, socket := fake(t, script)
	o := Options{Generators: []Generator{{Socket: socket}}, Drain: time.Second}
	for _, c := range change {
		c(&o)
	}
	return serve(t, o).url, g
}

// askOllama sends a request and returns the status and the lines of the answer.
func askOllama(t *testing.T, method, url, body string) (int, []map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var lines []map[string]any
	for d := json.NewDecoder(reply.Body); ; {
		var line map[string]any
		if err := d.Decode(&line); err == io.EOF {
			return reply.StatusCode, lines
		} else if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
}

// generated returns the request that reached the generator.
func generated(t *testing.T, gen *fakegen.Generator) *protocol.Generate {
	t.Helper()
	m, err := gen.Wait(t.Context().Done(), func(m any) bool { _, is := m.(*protocol.Generate); return is })
	if err != nil {
		t.Fatal(err)
	}
	return m.(*protocol.Generate)
}

// A chat streams a line for each token, and the last line has Ollama's figures in nanoseconds.
func TestOllamaChatStreams(t *testing.T) {
	base, _ := beside(t, fakegen.Script{Chat: true, Tokens: []fakegen.Piece{
		{Reasoning: "hm"}, {Text: "Hello"}, {Text: " <b>"}, {Text: ""}}})
	code, lines := askOllama(t, "POST", base+"/api/chat", `{"model":"fake:latest","messages":[{"role":"USER","content":"x"}]}`)
	if code != 200 || len(lines) != 4 {
		t.Fatalf("%d, %v", code, lines)
	}
	var text, thinking string
	for _, l := range lines {
		m := l["message"].(map[string]any)
		text += m["content"].(string)
		if more, ok := m["thinking"].(string); ok {
			thinking += more
		}
		if l["model"] != "fake:latest" || m["role"] != "assistant" {
			t.Errorf("line %v", l)
		}
	}
	last := lines[3]
	if text != "Hello <b>" || thinking != "hm" || last["done"] != true || lines[0]["done"] != false {
		t.Errorf("%q, %q, %v", text, thinking, lines)
	}
	want := map[string]any{"done_reason": "stop", "total_duration": 110e6, "load_duration": 1e6, "prompt_eval_count": 3.0,
		"prompt_eval_duration": 9e6, "eval_count": 4.0, "eval_duration": 100e6}
	for name, value := range want {
		if last[name] != value {
			t.Errorf("%s is %v, want %v", name, last[name], value)
		}
	}
}

// Without a stream the answer is one object with all of it.
func TestOllamaWithoutStream(t *testing.T) {
	base, gen := beside(t, fakegen.Script{Pieces: []string{"Hello", " there", " again"}})
	code, lines := askOllama(t, "POST", base+"/api/generate",
		`{"model":"fake","prompt":"x","stream":false,"logprobs":true,"top_logprobs":2,"options":{"num_predict":2}}`)
	if code != 200 || len(lines) != 1 {
		t.Fatalf("%d, %v", code, lines)
	}
	all := lines[0]
	if all["response"] != "Hello there" || all["done_reason"] != "length" || all["eval_count"] != 2.0 {
		t.Errorf("%v", all)
	}
	if logprobs, _ := all["logprobs"].([]any); len(logprobs) != 2 ||
		len(logprobs[1].(map[string]any)["top_logprobs"].([]any)) != 2 {
		t.Errorf("logprobs %v", all["logprobs"])
	}
	if m := generated(t, gen); m.Prompt == nil || *m.Prompt != "x" || *m.MaxTokens != 2 {
		t.Errorf("%+v", m)
	}
}

// Calls of tools come whole, their arguments as objects; one that max_tokens has cut is left out.
func TestOllamaTools(t *testing.T) {
	call := func(i int, id, name, arguments string) fakegen.Piece {
		return fakegen.Piece{Call: &protocol.CallPiece{Index: i, ID: id, Name: name, Arguments: arguments}}
	}
	base, gen := beside(t, fakegen.Script{Chat: true, Tokens: []fakegen.Piece{{Text: "See: "},
		call(0, "a", "weather", `{"city":`), call(0, "", "", `"Rome"}`), call(1, "b", "now", ""), call(2, "c", "cut", `{"x`)}})
	body := `{"model":"fake","stream":%v,"tools":[{"type":"function","function":{"name":"weather"}}],"messages":[
		{"role":"user","content":"x"},
		{"role":"assistant","content":"","thinking":"t","tool_calls":[{"function":{"name":"weather","arguments":{"b":1,"a":2}}}]},
		{"role":"tool","tool_name":"weather","content":"rain"}]}`
	_, lines := askOllama(t, "POST", base+"/api/chat", fmt.Sprintf(body, true))
	var calls []any
	for _, l := range lines {
		more, _ := l["message"].(map[string]any)["tool_calls"].([]any)
		calls = append(calls, more...)
	}
	want := []any{
		map[string]any{"id": "a", "function": map[string]any{"index": 0.0, "name": "weather", "arguments": map[string]any{"city": "Rome"}}},
		map[string]any{"id": "b", "function": map[string]any{"index": 1.0, "name": "now", "arguments": map[string]any{}}},
	}
	if !reflect.DeepEqual(calls, want) || lines[len(lines)-1]["done_reason"] != "stop" {
		t.Errorf("%v", lines)
	}
	_, lines = askOllama(t, "POST", base+"/api/chat", fmt.Sprintf(body, false))
	if m := lines[0]["message"].(map[string]any); !reflect.DeepEqual(m["tool_calls"], want) || m["content"] != "See: " {
		t.Errorf("%v", lines)
	}
	m := generated(t, gen)
	messages := []protocol.Message{{Role: "user", Content: "x"},
		{Role: "assistant", Reasoning: "t", ToolCalls: []protocol.ToolCall{{Name: "weather", Arguments: `{"b":1,"a":2}`}}},
		{Role: "tool", Name: "weather", Content: "rain"}}
	if !reflect.DeepEqual(m.Messages, messages) || m.Tools == nil || !strings.Contains(*m.Tools, `"weather"`) {
		t.Errorf("%+v", m)
	}
}

// Every option reaches the generator. Those that Ollama has and Reel does not are ignored.
func TestOllamaOptions(t *testing.T) {
	base, gen := beside(t, fakegen.Script{Chat: true})
	code, _ := askOllama(t, "POST", base+"/api/generate", `{"model":"fake","prompt":"x","system":"s","think":"low","format":"json",
		"keep_alive":"5m","options":{"num_predict":20.0,"temperature":0.5,"top_k":9000,"top_p":0.9,"min_p":0.1,"repeat_penalty":1.2,
		"repeat_last_n":64,"presence_penalty":1,"frequency_penalty":-1,"seed":7,"stop":["a"],"num_ctx":4096,"num_gpu":1}}`)
	m := generated(t, gen)
	want := protocol.Generate{Type: m.Type, ID: m.ID, User: m.User,
		Messages:  []protocol.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "x"}},
		MaxTokens: new(20), Temperature: new(0.5), TopK: new(4096), TopP: new(0.9), MinP: new(0.1), RepeatPenalty: new(1.2),
		PresencePenalty: new(1.0), FrequencyPenalty: new(-1.0), Seed: new(uint64(7)), Stop: []string{"a"},
		Format: &protocol.Format{JSON: true}, Reasoning: new("apart"),
		Template: map[string]any{"enable_thinking": true, "reasoning_effort": "low"}}
	if code != 200 || !reflect.DeepEqual(*m, want) {
		t.Errorf("%d\n got %+v\nwant %+v", code, *m, want)
	}
}

// Without num_predict an answer may fill the context; a negative seed is a random one, which
// the gateway draws; a penalty over no token is none.
func TestOllamaDefaults(t *testing.T) {
	base, gen := beside(t, fakegen.Script{Context: 100})
	askOllama(t, "POST", base+"/api/generate", `{"model":"fake","raw":true,"prompt":"x","format":"",
		"options":{"num_predict":-1,"seed":-1,"top_k":-1,"top_p":0,"repeat_penalty":1.3,"repeat_last_n":0}}`)
	m := generated(t, gen)
	if *m.MaxTokens != 100 || m.Seed == nil || *m.Seed == math.MaxUint64 || *m.TopK != 0 || *m.TopP != leastTopP ||
		*m.RepeatPenalty != 1 || m.Format != nil || m.Temperature != nil {
		t.Errorf("%+v", m)
	}
}

// What would change an answer's meaning and cannot be done is refused by name.
func TestOllamaRefuses(t *testing.T) {
	base, _ := beside(t, fakegen.Script{Chat: true})
	for body, want := range map[string]string{
		`{"model":"fake","prompt":"x","template":"{{ .Prompt }}"}`:                          "template",
		`{"model":"fake","prompt":"x","suffix":"y"}`:                                        "suffix",
		`{"model":"fake","prompt":"x","context":[1]}`:                                       "context",
		`{"model":"fake","prompt":"x","images":["aGk="]}`:                                   "images",
		`{"model":"fake","prompt":"x","format":"xml"}`:                                      "format",
		`{"model":"fake","prompt":"x","think":3}`:                                           "think",
		`{"model":"fake","prompt":"x","options":{"seed":1.5}}`:                              "options.seed",
		`{"model":"fake","prompt":"x","options":{"repeat_penalty":2,"repeat_last_n":1000}}`: "options.repeat_last_n",
		`{"model":"fake","prompt":"x","options":{"temperature":"hot"}}`:                     "options.temperature",
		`{"model":"fake","messages":[{"role":"user","content":"x","images":["aGk="]}]}`:     "messages[0].images",
		`{"model":`: "JSON",
	} {
		path := "/api/generate"
		if strings.Contains(body, "messages") {
			path = "/api/chat"
		}
		code, lines := askOllama(t, "POST", base+path, body)
		if said, _ := lines[0]["error"].(string); code != 400 || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %v", body, code, lines)
		}
	}
	code, lines := askOllama(t, "POST", base+"/api/chat", `{"model":"other","messages":[{"role":"user","content":"x"}]}`)
	if said, _ := lines[0]["error"].(string); code != 404 || !strings.Contains(said, "fake") {
		t.Errorf("an unknown model: %d, %v", code, lines)
	}
}

// An error in the middle of a stream is its last line; one before it has a status.
func TestOllamaErrors(t *testing.T) {
	fails := fakegen.Script{Ending: fakegen.Fail, Error: protocol.Errorf(protocol.CodeDeviceFailed, "repeat it", "the device failed")}
	base, _ := beside(t, fails)
	code, lines := askOllama(t, "POST", base+"/api/generate", `{"model":"fake","prompt":"x"}`)
	if said, _ := lines[len(lines)-1]["error"].(string); code != 200 || !strings.Contains(said, "the device failed") {
		t.Errorf("%d, %v", code, lines)
	}
	code, lines = askOllama(t, "POST", base+"/api/generate", `{"model":"fake","prompt":"x","stream":false}`)
	if said, _ := lines[0]["error"].(string); code != 503 || !strings.Contains(said, "the device failed") {
		t.Errorf("%d, %v", code, lines)
	}
	code, lines = askOllama(t, "POST", base+"/api/chat", `{"model":"fake","messages":[{"role":"user","content":"x"}]}`)
	if said, _ := lines[0]["error"].(string); code != 400 || !strings.Contains(said, "--chat-template") {
		t.Errorf("%d, %v", code, lines)
	}
}

// A request without a prompt loads a model in Ollama; here it is loaded already.
func TestOllamaLoad(t *testing.T) {
	base, _ := beside(t, fakegen.Script{Chat: true})
	for path, body := range map[string]string{
		"/api/generate": `{"model":"fake","keep_alive":0}`, "/api/chat": `{"model":"fake","messages":[]}`,
	} {
		code, lines := askOllama(t, "POST", base+path, body)
		if code != 200 || len(lines) != 1 || lines[0]["done"] != true || lines[0]["done_reason"] != "load" {
			t.Errorf("%s: %d, %v", path, code, lines)
		}
	}
}

// Lists and descriptions of models have what clients read.
func TestOllamaModels(t *testing.T) {
	base, _ := beside(t, fakegen.Script{Chat: true, Tools: true})
	_, lines := askOllama(t, "GET", base+"/api/tags", "")
	m := lines[0]["models"].([]any)[0].(map[string]any)
	if m["name"] != "fake:latest" || m["size"] != float64(5<<20) || len(m["digest"].(string)) != 64 ||
		!reflect.DeepEqual(m["capabilities"], []any{"chat", "completion", "thinking", "tools"}) {
		t.Errorf("tags: %v", m)
	}
	_, lines = askOllama(t, "GET", base+"/api/ps", "")
	m = lines[0]["models"].([]any)[0].(map[string]any)
	if m["context_length"] != 512.0 || m["size_vram"] != 0.0 || m["expires_at"] == nil {
		t.Errorf("ps: %v", m)
	}
	code, lines := askOllama(t, "POST", base+"/api/show", `{"name":"fake:latest"}`)
	info, _ := lines[0]["model_info"].(map[string]any)
	if code != 200 || info["reel.context_length"] != 512.0 || info["general.architecture"] != "reel" ||
		!strings.Contains(lines[0]["parameters"].(string), "temperature 0.6\n") {
		t.Errorf("show: %d, %v", code, lines)
	}
	code, lines = askOllama(t, "POST", base+"/api/show", `{"model":"other"}`)
	if code != 404 || lines[0]["error"] == nil {
		t.Errorf("show of another: %d, %v", code, lines)
	}
	plain, _ := beside(t, fakegen.Script{})
	_, lines = askOllama(t, "POST", plain+"/api/show", `{"model":"fake"}`)
	if !reflect.DeepEqual(lines[0]["capabilities"], []any{"completion"}) {
		t.Errorf("show of a model without a chat template: %v", lines)
	}
	_, lines = askOllama(t, "GET", base+"/api/version", "")
	if lines[0]["version"] != ollamaVersion {
		t.Errorf("version: %v", lines)
	}
}

// What would change models, or needs embeddings, is answered with a reason.
func TestOllamaLacks(t *testing.T) {
	base, _ := beside(t, fakegen.Script{})
	for path, method := range map[string]string{
		"pull": "POST", "push": "POST", "create": "POST", "copy": "POST", "delete": "DELETE", "embed": "POST",
		"embeddings": "POST", "blobs/sha256:00": "POST",
	} {
		code, lines := askOllama(t, method, base+"/api/"+path, `{"model":"fake"}`)
		if said, _ := lines[0]["error"].(string); code != 501 || !strings.Contains(said, "reel-generator") {
			t.Errorf("%s: %d, %v", path, code, lines)
		}
	}
	if code, lines := askOllama(t, "GET", base+"/api/nothing", ""); code != 404 || lines[0]["error"] == nil {
		t.Errorf("an unknown path: %d, %v", code, lines)
	}
}

// A client that hangs up ends its request.
func TestOllamaHangUp(t *testing.T) {
	base, gen := beside(t, fakegen.Script{Ending: fakegen.Hang})
	ctx, hangUp := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/generate", strings.NewReader(`{"model":"fake","prompt":"x"}`))
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if _, err := bufio.NewReader(reply.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	hangUp()
	if _, err := gen.Wait(t.Context().Done(), func(m any) bool { _, is := m.(*protocol.Cancel); return is }); err != nil {
		t.Error(err)
	}
}

// FuzzOllama: whatever is sent, the answer is one of JSON with a status that says what went wrong.
func FuzzOllama(f *testing.F) {
	s := serveFake(f, fakegen.Script{Chat: true, Pieces: []string{"a"}})
	f.Add(true, `{"model":"fake","messages":[{"role":"user","content":"x"}],"stream":false,"think":"low","tools":[]}`)
	f.Add(false, `{"model":"fake","prompt":"x","system":"y","format":{"type":"object"},"options":{"seed":1e99,"top_k":-1}}`)
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		path := "/api/generate"
		if chat {
			path = "/api/chat"
		}
		in := *s
		in.t = t
		status, answer := in.post(path, body)
		if status != 200 && (status < 400 || status >= 500) {
			t.Errorf("%d: %s", status, answer)
		}
		for line := range strings.Lines(answer) {
			parsed(t, line)
		}
	})
}
