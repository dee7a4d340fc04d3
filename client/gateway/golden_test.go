package gateway

import (
	"bytes"
	"encoding/json"
	cli "flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

var update = cli.Bool("update", false, "write testdata/requests.txt")

// TestGoldenRequests: testdata/requests.txt has HTTP requests, each with the frames that the generator
// receives for it, or with the error that the client receives. A line that begins with > is an answer.
func TestGoldenRequests(t *testing.T) {
	const path = "testdata/requests.txt"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var fresh strings.Builder
	for line := range strings.Lines(string(old)) {
		switch {
		case strings.HasPrefix(line, ">"):
			continue
		case strings.HasPrefix(line, "/"):
			fresh.WriteString(line)
			at, body, _ := strings.Cut(strings.TrimSpace(line), " ")
			for _, answer := range frames(t, at, body) {
				fmt.Fprintf(&fresh, "> %s\n", answer)
			}
		default:
			fresh.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(fresh.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, got := strings.Split(string(old), "\n"), strings.Split(fresh.String(), "\n")
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("%s, line %d:\n got %s\nwant %s", path, i+1, got[i], want[i])
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s has %d lines, want %d", path, len(want), len(got))
	}
}

// frames returns what a generator receives for a request, or the error that the client receives.
func frames(t *testing.T, path, body string) (list []string) {
	l := client.Limits{Context: 512, Vocab: 4096, PromptBytes: 1 << 16, Requests: 64}
	var requests []client.Request
	var err error
	switch path {
	case "/v1/chat/completions":
		var q chatRequest
		if err = decode([]byte(body), &q); err == nil {
			requests, err = q.requests(l)
		}
	case "/v1/completions":
		var q textRequest
		if err = decode([]byte(body), &q); err == nil {
			requests, err = q.requests(l)
		}
	case "/v1/responses":
		var q responsesRequest
		if err = decode([]byte(body), &q); err == nil {
			requests, err = q.requests(l)
		}
	case "/v1/messages":
		var q anthropicRequest
		if err = decode([]byte(body), &q); err == nil {
			requests, err = q.requests(l)
		}
	}
	if err != nil {
		return []string{refusedAs(path, asAPIError(err))}
	}
	for _, req := range requests {
		list = append(list, sent(t, req))
	}
	return list
}

// refusedAs returns an error's status, and its object in the form of the API.
func refusedAs(path string, e *apiError) string {
	var object any = e.openAI().Error
	if path == "/v1/messages" {
		object = e.anthropic().Error
	}
	text, _ := json.Marshal(object)
	return fmt.Sprint(e.status, " ", string(text))
}

// sent returns the frame that package client sends for a request, as JSON with sorted keys.
func sent(t *testing.T, req client.Request) string {
	t.Helper()
	g, socket := fake(t, fakegen.Script{Chat: true})
	c, err := client.Dial(t.Context(), client.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Generate(t.Context(), req) {
		if err != nil {
			return "client: " + err.Error()
		}
	}
	m := lastRequest(t, g)
	m.ID = 0
	frame, err := protocol.AppendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := msgpack.Unmarshal(frame[4:], &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "id")
	delete(fields, "type")
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text.String())
}
