package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// fake starts a stand-in for a generator and returns its socket.
func fake(t testing.TB, s fakegen.Script) (*fakegen.Generator, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "g.sock")
	return fakeAt(t, socket, s), socket
}

// fakeAt starts a stand-in that takes over a socket's path at once.
func fakeAt(t testing.TB, socket string, s fakegen.Script) *fakegen.Generator {
	t.Helper()
	l, err := net.Listen("unix", socket+".new")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(socket+".new", socket); err != nil {
		t.Fatal(err)
	}
	g := fakegen.New(s)
	go g.Serve(l)
	t.Cleanup(func() { _ = l.Close() })
	return g
}

// server is a gateway under test.
type server struct {
	*Gateway
	t    testing.TB
	url  string
	stop context.CancelFunc // has it drain
	cut  context.CancelFunc // ends its patience with requests that run
	done chan error         // what Serve returned
}

// serve starts a gateway for tests, after adjust. Without addresses it listens on a free port of 127.0.0.1.
func serve(t testing.TB, o Options, adjust ...func(*Gateway)) *server {
	t.Helper()
	if o.Listen == nil {
		o.Listen = []string{"127.0.0.1:0"}
	}
	o.Logger = zerolog.Nop()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range adjust {
		change(g)
	}
	ctx, stop := context.WithCancel(context.Background())
	patience, hurry := context.WithCancel(context.Background())
	s := &server{g, t, "http://" + g.Addresses()[0], stop, hurry, make(chan error, 1)}
	go func() { s.done <- g.Serve(ctx, patience) }()
	t.Cleanup(func() {
		stop()
		hurry()
		select {
		case err := <-s.done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the gateway does not end")
		}
	})
	return s
}

// serveFake starts a gateway before a stand-in that follows script.
func serveFake(t testing.TB, script fakegen.Script, adjust ...func(*Gateway)) *server {
	_, socket := fake(t, script)
	return serve(t, Options{Generators: []Generator{{Socket: socket}}}, adjust...)
}

// request returns a request to the gateway with a JSON body, unless that is empty.
func (s *server) request(method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

// do sends a request and returns the answer's status and body.
func (s *server) do(r *http.Request) (int, string) {
	s.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// post sends body to path.
func (s *server) post(path, body string, headers ...string) (int, string) {
	s.t.Helper()
	return s.do(s.request("POST", path, body, headers...))
}

// get asks for path.
func (s *server) get(path string, headers ...string) (int, string) {
	s.t.Helper()
	return s.do(s.request("GET", path, "", headers...))
}

// parsed decodes a JSON answer.
func parsed(t testing.TB, body string) (value map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return value
}

// TestModels: the models are those of the generators, by their names or those of the settings. Aliases of them are
// listed too, behind them.
func TestModels(t *testing.T) {
	_, one := fake(t, fakegen.Script{Model: "one"})
	_, two := fake(t, fakegen.Script{Model: "two"})
	s := serve(t, Options{Generators: []Generator{{Socket: one}, {Name: "second", Socket: two}},
		Aliases: map[string]string{"gpt-4o": "one", "tagged:latest": "one:latest", "lost": "nowhere",
			"second": "second"}})
	status, body := s.get("/v1/models")
	var names []string
	for _, m := range parsed(t, body)["data"].([]any) {
		one := m.(map[string]any)
		names = append(names, one["id"].(string))
		if one["object"] != "model" || one["owned_by"] != "reel" || one["created"].(float64) < 1 {
			t.Errorf("%v", one)
		}
	}
	if status != 200 || strings.Join(names, " ") != "one second gpt-4o tagged" {
		t.Errorf("%d %s", status, body)
	}
	for name, want := range map[string]string{
		"one": "one", "one:latest": "one", "second": "second", "gpt-4o": "gpt-4o", "tagged": "tagged",
		"tagged:latest": "tagged", "two": "", "One": "", "lost": "",
	} {
		status, body := s.get("/v1/models/" + name)
		if want == "" {
			if status != 404 || !strings.Contains(body, "one, second, gpt-4o") ||
				!strings.Contains(body, "model_not_found") {
				t.Errorf("%s: %d %s", name, status, body)
			}
			continue
		}
		if status != 200 || parsed(t, body)["id"] != want {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestSilentGenerator: a generator that does not answer delays no request for another one.
func TestSilentGenerator(t *testing.T) {
	_, silent := fake(t, fakegen.Script{Silent: true})
	_, socket := fake(t, fakegen.Script{Chat: true, Model: "one"})
	s := serve(t, Options{Generators: []Generator{{Socket: silent}, {Name: "one", Socket: socket}}})
	begin := time.Now()
	status, body := s.post("/v1/chat/completions", `{"model":"one","messages":[{"role":"user","content":"hi"}]}`)
	if took := time.Since(begin); status != http.StatusOK || took > 2*time.Second {
		t.Errorf("%d %s after %v", status, body, took)
	}
}

// writeSleeping leaves the record of a generator that sleeps beside a socket.
func writeSleeping(t *testing.T, socket string) {
	t.Helper()
	record := []byte(`{"state":"sleeping","pid":1,"at":"2026-01-01T00:00:00Z"}`)
	if err := os.WriteFile(protocol.RecordPath(socket), record, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSleepingGenerator: a request wakes a generator that sleeps, and no question does.
func TestSleepingGenerator(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Chat: true, Model: "one"})
	writeSleeping(t, socket)
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	if status, _ := s.get("/ready"); status != http.StatusOK {
		t.Errorf("/ready of a generator that a request starts: %d", status)
	}
	if _, body := s.get("/v1/models"); !strings.Contains(body, `"data":[]`) {
		t.Errorf("%s", body)
	}
	if _, err := g.Wait(within(t, 20*time.Millisecond), func(any) bool { return true }); err == nil {
		t.Error("a question woke it")
	}
	if status, body := s.post("/v1/chat/completions", someChat); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestReady: /health is 200 while the gateway lives, /ready while a model can serve.
func TestReady(t *testing.T) {
	s := serve(t, Options{Generators: []Generator{{Socket: "/nowhere/generator.sock"}}})
	if status, _ := s.get("/health"); status != 200 {
		t.Errorf("/health: %d", status)
	}
	if status, body := s.get("/ready"); status != 503 {
		t.Errorf("/ready: %d %s", status, body)
	}
	if status, _ := serveFake(t, fakegen.Script{}).get("/ready"); status != 200 {
		t.Errorf("/ready with a generator: %d", status)
	}
	if status, _ := serveFake(t, fakegen.Script{State: "draining"}).get("/ready"); status != 503 {
		t.Errorf("/ready while the generator drains: %d", status)
	}
}

// lastRequest waits for a request and returns the last that the stand-in has received.
func lastRequest(t testing.TB, g *fakegen.Generator) (last *protocol.Generate) {
	t.Helper()
	_, err := g.Wait(t.Context().Done(), func(message any) bool {
		m, ok := message.(*protocol.Generate)
		if ok {
			last = m
		}
		return ok
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}
