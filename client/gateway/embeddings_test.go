package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// embedder serves a stand-in for a model for embeddings.
func embedder(t *testing.T, s fakegen.Script) *server {
	t.Helper()
	s.Embeds = true
	return serveFake(t, s)
}

// The vector of n bytes in fakegen is n/2, n+1, 0, 0, and of n tokens 0, n, 0, 0.
func TestEmbeddings(t *testing.T) {
	s := embedder(t, fakegen.Script{Cached: 1})
	base := base64.StdEncoding.EncodeToString([]byte{0, 0, 0, 0x3f, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, c := range []struct {
		body, data string
		tokens     int
	}{
		{`"input":"abcd"`, `[[2,5,0,0]]`, 5},
		{`"input":["a","bc"],"encoding_format":"float","user":"somebody"`, `[[0.5,2,0,0],[1,3,0,0]]`, 5},
		{`"input":[7,8,9]`, `[[0,3,0,0]]`, 3},
		{`"input":[[7],[8,9]],"dimensions":2`, `[[0,1],[0,2]]`, 3},
		{`"input":"a","encoding_format":"base64"`, `["` + base + `"]`, 2},
		{`"input":"a","prompt_name":"query","dimensions":null`, `[[0.5,2,0,0]]`, 2},
	} {
		status, body := s.post("/v1/embeddings", `{"model":"fake",`+c.body+`}`)
		var got struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding json.RawMessage
			}
			Usage map[string]int
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", c.body, status, body)
		}
		var vectors []string
		for i, d := range got.Data {
			if vectors = append(vectors, string(d.Embedding)); d.Object != "embedding" || d.Index != i {
				t.Errorf("%s: object %q, index %d, want %d", c.body, d.Object, d.Index, i)
			}
		}
		if text := "[" + strings.Join(vectors, ",") + "]"; text != c.data || got.Object != "list" ||
			got.Model != "fake" || got.Usage["prompt_tokens"] != c.tokens || got.Usage["total_tokens"] != c.tokens {
			t.Errorf("%s: %s, want %s and %d tokens", c.body, body, c.data, c.tokens)
		}
	}
	_, text := s.get("/metrics")
	if !strings.Contains(text, `reel_gateway_tokens_total{kind="prompt",model="fake"} 20`) ||
		!strings.Contains(text, `reel_gateway_tokens_total{kind="cached",model="fake"} 8`) {
		t.Errorf("metrics count other tokens: %s", text)
	}
}

// What a request asks for reaches the generator: vectors of length 1, as the caller's own.
func TestEmbeddingsReachTheGenerator(t *testing.T) {
	base, g := beside(t, fakegen.Script{Embeds: true})
	for _, c := range []struct {
		path, body string
		want       protocol.Embed
	}{
		{"/v1/embeddings", `{"model":"fake","input":"one","dimensions":3,"prompt_name":"query"}`,
			protocol.Embed{Prompt: new("one"), Normalize: new(true), Dimensions: new(3), PromptName: new("query")}},
		{"/api/embed", `{"model":"fake","input":"two"}`,
			protocol.Embed{Prompt: new("two"), Normalize: new(true), Truncate: true}},
		{"/api/embed", `{"model":"fake","input":"three","truncate":false,"dimensions":2,"keep_alive":"5m"}`,
			protocol.Embed{Prompt: new("three"), Normalize: new(true), Dimensions: new(2)}},
		{"/api/embeddings", `{"model":"fake","prompt":"four"}`,
			protocol.Embed{Prompt: new("four"), Normalize: new(false), Truncate: true}},
	} {
		if status, lines := askOllama(t, "POST", base+c.path, c.body); status != 200 {
			t.Fatalf("%s: %d %v", c.body, status, lines)
		}
		m, err := g.Wait(within(t, 5*time.Second), func(m any) bool {
			e, ok := m.(*protocol.Embed)
			return ok && *e.Prompt == *c.want.Prompt
		})
		if err != nil {
			t.Fatal(err)
		}
		e := m.(*protocol.Embed)
		c.want.Type, c.want.ID, c.want.User = e.Type, e.ID, e.User
		if !reflect.DeepEqual(e, &c.want) {
			t.Errorf("%s: %+v, want %+v", c.body, e, c.want)
		}
	}
}

// Requests that have no meaning are refused, with the field, and others' errors keep their codes.
func TestEmbeddingsAreRefused(t *testing.T) {
	s := embedder(t, fakegen.Script{})
	many := `"input":[` + strings.Repeat(`"a",`, maxInputs) + `"a"]`
	for _, c := range []struct{ body, code, says string }{
		{`"input":""`, "invalid_value", "input: text 0 is empty"},
		{`"input":["a",""]`, "invalid_value", "input: text 1 is empty"},
		{`"input":[[1],[]]`, "invalid_value", "input: list 1 of tokens is empty"},
		{`"input":[]`, "invalid_value", "input: want a text"},
		{`"input":{"a":1}`, "invalid_value", "input: want a text"},
		{`"other":1`, "invalid_value", "input: it is missing"},
		{many, "invalid_value", "input: 2049 texts: want at most 2048"},
		{`"input":"a","encoding_format":"int8"`, "invalid_value", "encoding_format: want float or base64"},
		{`"input":"a","dimensions":1`, "bad_request", "dimensions is 1: it must be 2 to 4"},
		{`"input":"a","truncate_prompt_tokens":5`, "unsupported_value", "truncate_prompt_tokens"},
		{`"input":[99999]`, "bad_request", "tokens[0] is 99999"},
	} {
		status, body := s.post("/v1/embeddings", `{"model":"fake",`+c.body+`}`)
		e, _ := parsed(t, body)["error"].(map[string]any)
		if status != 400 || e["code"] != c.code || !strings.Contains(fmt.Sprint(e["message"]), c.says) {
			t.Errorf("%.60s: %d %s, want %s with %q", c.body, status, body, c.code, c.says)
		}
	}
	other := serveFake(t, fakegen.Script{})
	for _, path := range []string{"/v1/embeddings", "/api/embed"} {
		if status, body := other.post(path, `{"model":"fake","input":"a"}`); status != 400 ||
			!strings.Contains(body, "not meant for embeddings") {
			t.Errorf("%s of another model: %d %s", path, status, body)
		}
	}
	if status, body := s.post("/v1/embeddings", `{"model":"none","input":"a"}`); status != 404 {
		t.Errorf("an unknown model: %d %s", status, body)
	}
}

// More texts than run at once come in their order, and an error of one ends the request.
func TestManyEmbeddings(t *testing.T) {
	s := embedder(t, fakegen.Script{})
	var input []string
	want := []any{}
	for i := range 5 * inputsAtOnce {
		input = append(input, strings.Repeat("a", 1+i))
		want = append(want, []any{float64(1+i) / 2, float64(2 + i), 0., 0.})
	}
	text, _ := json.Marshal(input)
	status, body := s.post("/api/embed", `{"model":"fake","input":`+string(text)+`}`)
	if got := parsed(t, body); status != 200 || !reflect.DeepEqual(got["embeddings"], want) {
		t.Errorf("%d %s", status, body)
	}
	input[3*inputsAtOnce] = strings.Repeat("a", 20000)
	text, _ = json.Marshal(input)
	if status, body := s.post("/v1/embeddings", `{"model":"fake","input":`+string(text)+`}`); status != 400 ||
		!strings.Contains(body, "prompt has 20000 bytes") {
		t.Errorf("%d %s", status, body)
	}
	eventually(t, "no request runs", func() bool { return s.running.Load() == 0 })
}

// Vectors that take more memory than there is for answers are refused.
func TestEmbeddingsFitTheMemory(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Embeds: true, Spoil: func(reply any) {
		if w, ok := reply.(*protocol.Welcome); ok {
			w.Embeddings = &protocol.Embeddings{Dimensions: 1 << 20, Least: 1 << 20}
		}
	}})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	input := strings.TrimSuffix(strings.Repeat(`"a",`, 9), ",")
	if status, body := s.post("/v1/embeddings", `{"model":"fake","input":[`+input+`]}`); status != 413 ||
		!strings.Contains(body, "9 vectors of 1048576 elements") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.post("/v1/embeddings", `{"model":"fake","input":"a"}`); status != 200 {
		t.Errorf("one vector: %d %s", status, body)
	}
}

// Ollama's two endpoints have forms of their own; without a text they only find the model.
func TestOllamaEmbeddings(t *testing.T) {
	base, _ := beside(t, fakegen.Script{Embeds: true})
	for _, c := range []struct{ path, body, field, want string }{
		{"embed", `"input":"abcd"`, "embeddings", `[[2,5,0,0]]`},
		{"embed", `"input":["a","bc"]`, "embeddings", `[[0.5,2,0,0],[1,3,0,0]]`},
		{"embed", `"input":""`, "embeddings", `[]`},
		{"embed", `"input":[]`, "embeddings", `[]`},
		{"embeddings", `"prompt":"abcd"`, "embedding", `[2,5,0,0]`},
		{"embeddings", `"prompt":""`, "embedding", `[]`},
	} {
		status, lines := askOllama(t, "POST", base+"/api/"+c.path, `{"model":"fake:latest",`+c.body+`}`)
		got, _ := json.Marshal(lines[0][c.field])
		if status != 200 || string(got) != c.want {
			t.Errorf("%s %s: %d %v, want %s", c.path, c.body, status, lines, c.want)
		}
	}
	_, lines := askOllama(t, "POST", base+"/api/embed", `{"model":"fake","input":"abcd"}`)
	if lines[0]["model"] != "fake" || lines[0]["prompt_eval_count"] != 5. || lines[0]["total_duration"] == nil {
		t.Errorf("%v", lines)
	}
	status, lines := askOllama(t, "POST", base+"/api/embed", `{"model":"fake","input":"a","dimensions":9}`)
	if said, _ := lines[0]["error"].(string); status != 400 || !strings.Contains(said, "dimensions is 9") {
		t.Errorf("%d %v", status, lines)
	}
	_, lines = askOllama(t, "POST", base+"/api/show", `{"model":"fake"}`)
	if !reflect.DeepEqual(lines[0]["capabilities"], []any{"embedding"}) {
		t.Errorf("show: %v", lines)
	}
}

// A client that hangs up ends the requests of all its texts.
func TestEmbeddingsHangUp(t *testing.T) {
	base, g := beside(t, fakegen.Script{Embeds: true, Ending: fakegen.Hang})
	ctx, hangUp := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/embeddings",
		strings.NewReader(`{"model":"fake","input":["a","b"]}`))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if reply, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, reply.Body)
			reply.Body.Close()
		}
	}()
	for _, text := range []string{"a", "b"} {
		if _, err := g.Wait(within(t, 5*time.Second), func(m any) bool {
			e, ok := m.(*protocol.Embed)
			return ok && *e.Prompt == text
		}); err != nil {
			t.Fatal(err)
		}
	}
	hangUp()
	ids := map[uint64]bool{}
	for len(ids) < 2 {
		m, err := g.Wait(within(t, 5*time.Second), func(m any) bool {
			c, ok := m.(*protocol.Cancel)
			return ok && !ids[c.ID]
		})
		if err != nil {
			t.Fatal(err)
		}
		ids[m.(*protocol.Cancel).ID] = true
	}
	<-gone
}
