//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"reel.internal/reel/client"
	"reel.internal/reel/client/gateway"
)

// keys of the gateway under test.
const keyA, keyB = "key-of-user-a-0123456789", "key-of-user-b-0123456789"

// gateway serves g over HTTP, with two keys, and returns the URL.
func (g *generator) gateway() string {
	return gatewayWith(g.t, gateway.Options{Generators: []gateway.Generator{{Socket: g.socket}}})
}

// gatewayOf serves the generators of sockets as one model.
func gatewayOf(t *testing.T, sockets ...string) string {
	t.Helper()
	var o gateway.Options
	for _, socket := range sockets {
		o.Generators = append(o.Generators, gateway.Generator{Name: "reel-tiny", Socket: socket})
	}
	return gatewayWith(t, o)
}

// gatewayWith serves over HTTP with two keys and the generators of o, and returns the URL.
func gatewayWith(t *testing.T, o gateway.Options) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte(keyA+"\n"+keyB+"\n"), 0o600))
	keys, err := gateway.ReadKeys(file)
	must(t, err)
	o.Listen, o.Keys, o.Logger = []string{"127.0.0.1:0"}, keys, zerolog.Nop()
	served, err := gateway.New(o)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- served.Serve(ctx, ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return "http://" + served.Addresses()[0]
}

// httpCompletion is what tests read of an answer of /v1/completions, or of one of its chunks.
type httpCompletion struct {
	Choices []struct {
		Text   string `json:"text"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// complete sends a request for a completion with a key and returns the answer's body.
func complete(t *testing.T, url, key, body string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s %s", answer.Status, text)
	}
	return answer.Body
}

// decoded decodes an answer.
func decoded(t *testing.T, text io.Reader) (c httpCompletion) {
	t.Helper()
	must(t, json.NewDecoder(text).Decode(&c))
	return c
}

// A request gives the same tokens over HTTP as over the socket, whole, in chunks, and as one of several choices.
func TestGatewayGivesTheSameTokens(t *testing.T) {
	t.Parallel()
	g := serve(t)
	url := g.gateway()
	var want strings.Builder
	for token, err := range g.client().Generate(t.Context(), client.Request{
		Prompt: "ROMEO:", MaxTokens: new(40), Seed: new(uint64(8)), Temperature: new(1.0), PresencePenalty: new(0.5)}) {
		must(t, err)
		want.WriteString(token.Text)
	}
	const body = `{"prompt": "ROMEO:", "max_tokens": 40, "temperature": 1, "presence_penalty": 0.5`
	whole := decoded(t, complete(t, url, keyA, body+`, "seed": 8}`))
	if got := whole.Choices[0]; got.Text != want.String() || got.Finish != "length" || whole.Usage.Completion != 40 {
		t.Errorf("whole: %+v, want %q", whole, want.String())
	}
	several := decoded(t, complete(t, url, keyA, body+`, "seed": 7, "n": 3}`))
	if got := several.Choices[1].Text; got != want.String() || several.Choices[0].Text == got {
		t.Errorf("the second of three choices: %+v, want %q", several, want.String())
	}
	var streamed strings.Builder
	for lines := bufio.NewScanner(complete(t, url, keyA, body+`, "seed": 8, "stream": true}`)); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
			streamed.WriteString(decoded(t, strings.NewReader("{"+data)).Choices[0].Text)
		}
	}
	if streamed.String() != want.String() {
		t.Errorf("in chunks: %q, want %q", streamed.String(), want.String())
	}
}

// A key finds the cached prompts of its own requests alone, though all keys come over one gateway.
func TestGatewayCachesByKey(t *testing.T) {
	t.Parallel()
	g := serve(t)
	url := g.gateway()
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint(500 + i)
	}
	body := `{"prompt": [` + strings.Join(ids, ",") + `], "max_tokens": 1}`
	for i, c := range []struct {
		key    string
		cached int
	}{{keyA, 0}, {keyB, 0}, {keyA, 96}, {keyB, 96}} {
		if got := decoded(t, complete(t, url, c.key, body)).Usage.Details.Cached; got != c.cached {
			t.Errorf("request %d: %d tokens were cached, want %d", i, got, c.cached)
		}
	}
}

// A client of HTTP that hangs up frees its slot.
func TestGatewayHangUp(t *testing.T) {
	g := serve(t)
	answer := complete(t, g.gateway(), keyA, `{"prompt": "ROMEO:", "max_tokens": 1000, "ignore_eos": true, "stream": true}`)
	_, err := bufio.NewReader(answer).ReadString('\n')
	must(t, err)
	must(t, answer.Close())
	g.eventually("the request is cancelled", func() bool {
		r := g.status().Requests
		return r.Cancelled == 1 && r.Running == 0
	})
}
