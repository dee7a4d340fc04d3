package gateway

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// seeds returns the bodies of testdata/requests.txt for a path.
func seeds(f *testing.F, path string) {
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if body, ok := strings.CutPrefix(line, path+" "); ok {
			f.Add([]byte(body))
		}
	}
}

var fuzzLimits = client.Limits{Context: 512, Vocab: 4096, PromptBytes: 1 << 16, Requests: 64}

// FuzzChatRequest: every body is refused with an error of 4xx, or becomes requests that the protocol
// can carry.
func FuzzChatRequest(f *testing.F) {
	seeds(f, "/v1/chat/completions")
	f.Fuzz(func(t *testing.T, body []byte) {
		var q chatRequest
		err := decode(body, &q)
		var requests []client.Request
		if err == nil {
			requests, err = q.requests(fuzzLimits)
		}
		checkFuzzed(t, requests, err)
	})
}

// FuzzTextRequest is the same for completions.
func FuzzTextRequest(f *testing.F) {
	seeds(f, "/v1/completions")
	f.Fuzz(func(t *testing.T, body []byte) {
		var q textRequest
		err := decode(body, &q)
		var requests []client.Request
		if err == nil {
			requests, err = q.requests(fuzzLimits)
		}
		checkFuzzed(t, requests, err)
	})
}

// FuzzResponsesRequest is the same for responses.
func FuzzResponsesRequest(f *testing.F) {
	seeds(f, "/v1/responses")
	f.Fuzz(func(t *testing.T, body []byte) {
		var q responsesRequest
		err := decode(body, &q)
		var requests []client.Request
		if err == nil {
			requests, err = q.requests(fuzzLimits)
		}
		checkFuzzed(t, requests, err)
		if err == nil {
			r := q.response(model{name: "m"}, protocol.DefaultSampling())
			if _, err := json.Marshal(r); err != nil {
				t.Fatalf("%v: %+v", err, r)
			}
		}
	})
}

// FuzzAnthropicRequest is the same for Anthropic's messages.
func FuzzAnthropicRequest(f *testing.F) {
	seeds(f, "/v1/messages")
	f.Fuzz(func(t *testing.T, body []byte) {
		var q anthropicRequest
		err := decode(body, &q)
		var requests []client.Request
		if err == nil {
			requests, err = q.requests(fuzzLimits)
		}
		checkFuzzed(t, requests, err)
	})
}

func checkFuzzed(t *testing.T, requests []client.Request, err error) {
	if err != nil {
		e := asAPIError(err)
		if _, failed := json.Marshal(e.openAI()); failed != nil || e.status < 400 || e.status > 499 || e.message == "" {
			t.Fatalf("%v: %+v", err, e)
		}
		return
	}
	if len(requests) == 0 || len(requests) > maxChoices {
		t.Fatalf("%d requests", len(requests))
	}
	for _, req := range requests {
		if *req.MaxTokens < 1 || *req.MaxTokens > fuzzLimits.Context || len(req.Tokens) > 0 && req.Prompt != "" {
			t.Fatalf("%+v", req)
		}
		for _, m := range req.Messages {
			if !utf8.ValidString(m.Content) || m.Role == "" {
				t.Fatalf("%+v", m)
			}
		}
	}
}

// FuzzGuard: no Host, Origin, Authorization or x-api-key gets a request of a stranger through.
func FuzzGuard(f *testing.F) {
	f.Add("localhost:8080", "http://localhost:8080", "Bearer first-key-0123456789", "")
	f.Add("evil.example", "null", "Bearer", "another")
	f.Add("[::1]:80", "https://app.example", "", "first-key-0123456789")
	f.Add("", "http", "", "")
	f.Add("", "https://", "", "")
	f.Add("i.example", "http://\u0130.example", "", "") // strings.ToLower makes an i of it
	keys, err := parseKeys("first-key-0123456789")
	if err != nil {
		f.Fatal(err)
	}
	hosts, err := newHosts(Options{AllowOrigins: []string{"https://app.example"}})
	if err != nil {
		f.Fatal(err)
	}
	g := &Gateway{o: Options{Keys: keys}, hosts: hosts}
	f.Fuzz(func(t *testing.T, host, origin, authorization, key string) {
		r := &http.Request{Host: host, Header: http.Header{"Authorization": {authorization}, "X-Api-Key": {key}}}
		if hosts.allowsHost(r) && !strings.HasPrefix(strings.ToLower(host), "localhost") &&
			!strings.Contains(host, "127.0.0.1") && !strings.Contains(host, "::1") {
			t.Errorf("the host %q is let through", host)
		}
		r.Header["Origin"] = []string{origin}
		ours := host != "" && (strings.EqualFold(origin, "http://"+host) || strings.EqualFold(origin, "https://"+host))
		if hosts.allowsOrigin(r) && !ours && !strings.EqualFold(origin, "https://app.example") {
			t.Errorf("the origin %q is let through with the host %q", origin, host)
		}
		if _, err := g.caller(r); err == nil && !strings.Contains(authorization+" "+key, "first-key-0123456789") {
			t.Errorf("%q, %q is let through", authorization, key)
		}
	})
}
