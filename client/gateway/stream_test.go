package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

const streamedChat = `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`

// open sends a request and returns its answer before it has ended.
func (s *server) open(ctx context.Context, path, body string) *http.Response {
	s.t.Helper()
	answer, err := http.DefaultClient.Do(s.request("POST", path, body).WithContext(ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// isCancel reports whether a message cancels a request.
func isCancel(message any) bool { _, ok := message.(*protocol.Cancel); return ok }

// within returns a channel that is closed after d.
func within(t *testing.T, d time.Duration) <-chan struct{} {
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx.Done()
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestPings: a silent stream shows that it lives.
func TestPings(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Hang})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Ping: 10 * time.Millisecond})
	lines := bufio.NewReader(s.open(t.Context(), "/v1/chat/completions", streamedChat).Body)
	for range 3 {
		if line, err := lines.ReadString('\n'); line != ": ping\n" {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = lines.ReadString('\n')
	}
}

// TestHangUpCancels: a client that hangs up cancels its request, also while nothing is written.
func TestHangUpCancels(t *testing.T) {
	for _, request := range [][2]string{
		{"/v1/chat/completions", streamedChat}, {"/v1/chat/completions", someChat},
		{"/v1/responses", streamedResponse}, {"/v1/responses", someResponse},
		{"/v1/messages", streamedMessage}, {"/v1/messages", someMessage},
	} {
		g, socket := fake(t, fakegen.Script{Chat: true, Ending: fakegen.Hang})
		s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			answer, err := http.DefaultClient.Do(s.request("POST", request[0], request[1]).WithContext(ctx))
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
			}
		}()
		lastRequest(t, g)
		hangUp()
		if _, err := g.Wait(within(t, 5*time.Second), isCancel); err != nil {
			t.Errorf("%s: %v", request, err)
		}
		<-gone
		eventually(t, "no request runs", func() bool { return s.running.Load() == 0 })
	}
}

// TestErrors: an error before the first token has its status, in OpenAI's form, in both kinds of answer.
func TestErrors(t *testing.T) {
	for code, want := range map[string]int{
		"bad_request": 400, "bad_format": 400, "format_unavailable": 400, "prompt_too_long": 400,
		"no_chat_template": 400, "template_failed": 400, "no_generation": 400, "no_embeddings": 400,
		"loading": 503, "shutdown": 503, "device_failed": 503,
		"model_changed": 503, "configuration": 503,
		"internal": 500, "format_failed": 500, "something_new": 500, "forbidden": 403,
	} {
		s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Fail,
			Error: protocol.Errorf(code, "do that", "the cause")})
		for _, body := range []string{someChat, streamedChat} {
			r, err := http.DefaultClient.Do(s.request("POST", "/v1/chat/completions", body))
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r.Body)
			e := parsed(t, string(text))["error"].(map[string]any)
			if code == "prompt_too_long" {
				code = "context_length_exceeded"
			}
			told := strings.Contains(e["message"].(string), "the cause")
			if r.StatusCode != want || e["code"] != code || told == (withoutPaths[code] != "") ||
				(want == 503) != (r.Header.Get("Retry-After") != "") {
				t.Errorf("%s: %d %v %s", code, r.StatusCode, r.Header, text)
			}
		}
	}
}

// TestNoChatTemplate: a base model answers chats with the flag that gives it a template.
func TestNoChatTemplate(t *testing.T) {
	s := serveFake(t, fakegen.Script{})
	status, body := s.post("/v1/chat/completions", someChat)
	if status != 400 || !strings.Contains(body, `"no_chat_template"`) || !strings.Contains(body, "--chat-template") {
		t.Errorf("%d %s", status, body)
	}
}

// TestErrorAgainstPing: a ping that comes after an error without a stream writes nothing.
func TestErrorAgainstPing(t *testing.T) {
	w := httptest.NewRecorder()
	s := (&Gateway{o: Options{Ping: time.Hour}}).newStream(w, true)
	defer s.end()
	s.fail(httptest.NewRequest(http.MethodPost, "/v1/completions", nil), errQueue)
	s.comment()
	if w.Code != http.StatusTooManyRequests || strings.Contains(w.Body.String(), "ping") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// logLines is a log whose lines a test reads.
type logLines chan string

// Write sends a line.
func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestPathsStayHere: an error's paths are in the log, and no client reads them.
func TestPathsStayHere(t *testing.T) {
	log := make(logLines, 8)
	o := Options{Generators: []Generator{{Name: "m", Socket: "/nowhere/g.sock"}}}
	s := serve(t, o, func(g *Gateway) { g.failures = zerolog.New(log) })
	for _, path := range []string{"/v1/chat/completions", "/api/chat"} {
		status, body := s.post(path, streamedChat)
		line := <-log
		if status != 503 || strings.Contains(body, "nowhere") || !strings.Contains(line, "/nowhere/g.sock") {
			t.Errorf("%s: %d %s, log %s", path, status, body, line)
		}
	}
	for _, err := range []error{
		client.ErrNoGenerator, client.ErrDenied, client.ErrConfig, client.ErrConnectionLost, io.EOF,
	} {
		e := asAPIError(fmt.Errorf("%w: dial unix /run/secret", err))
		if strings.Contains(e.message, "secret") || e.status < 500 {
			t.Errorf("%v: %d %s", err, e.status, e.message)
		}
	}
}

// TestFailuresAreLogged: an error that is not the client's has a line, in each API's streams too.
func TestFailuresAreLogged(t *testing.T) {
	log := make(logLines, 8)
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a"}, Ending: fakegen.Fail,
		Error: protocol.Errorf("device_failed", "", "the device failed")},
		func(g *Gateway) { g.failures = zerolog.New(log) })
	for _, path := range []string{"/v1/chat/completions", "/api/chat"} {
		s.post(path, streamedChat)
		if line := <-log; !strings.Contains(line, path) || !strings.Contains(line, "device_failed") {
			t.Errorf("%s: %s", path, line)
		}
	}
}

// TestOwnFailuresAreLogged: a panic and the want of descriptors show without --verbose, a broken connection does not.
func TestOwnFailuresAreLogged(t *testing.T) {
	log := make(logLines, 8)
	lines := newErrorLog(zerolog.New(log).Level(zerolog.InfoLevel))
	lines.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	lines.Print("http: panic serving 192.0.2.1:1: nil map")
	lines.Print("http: Accept error: too many open files; retrying in 5ms")
	if len(log) != 2 || !strings.Contains(<-log, "nil map") || !strings.Contains(<-log, "too many open files") {
		t.Errorf("%d lines besides", len(log))
	}
}

// TestErrorInMidStream: after the first token an error is the last event, and the answer has no end.
func TestErrorInMidStream(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: []string{"a"}, Ending: fakegen.Fail,
		Error: protocol.Errorf("device_failed", "", "the device failed")})
	status, body := s.post("/v1/chat/completions", streamedChat)
	if status != 200 || !strings.Contains(body, `data: {"error":{"message":"the device failed"`) ||
		strings.Contains(body, "[DONE]") || strings.Contains(body, "finish_reason\":\"stop") {
		t.Errorf("%d %s", status, body)
	}
}

// TestGeneratorGoesAway: the end of the generator is an error of the stream, and the next request
// reaches the generator that comes after it.
func TestGeneratorGoesAway(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true, Pieces: []string{}, Ending: fakegen.Drop})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	status, body := s.post("/v1/chat/completions", someChat)
	if status != 503 || !strings.Contains(body, "no_generator") {
		t.Errorf("%d %s", status, body)
	}
	fakeAt(t, socket, fakegen.Script{Chat: true, Pieces: []string{"back"}})
	status, body = s.post("/v1/chat/completions", someChat)
	if status != 200 || !strings.Contains(body, "back") {
		t.Errorf("%d %s", status, body)
	}
}

// TestDrain: running requests end by themselves, new ones are refused, and then the gateway ends.
func TestDrain(t *testing.T) {
	p := newPacer(t)
	s := serve(t, Options{Generators: []Generator{{Socket: p.socket}}})
	go func() { p.token <- true }()
	answer := s.open(t.Context(), "/v1/chat/completions", streamedChat)
	lines := bufio.NewReader(answer.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	s.stop()
	eventually(t, "it drains", s.draining.Load)
	if status, body := s.post("/v1/chat/completions", someChat); status != 503 || !strings.Contains(body, "draining") {
		t.Errorf("a new request: %d %s", status, body)
	}
	if status, _ := s.get("/health"); status != 200 {
		t.Errorf("/health: %d", status)
	}
	p.token <- true
	p.token <- false
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.HasSuffix(string(rest), "[DONE]\n\n") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestDrainIsBounded: a request that does not end is ended with an error.
func TestDrainIsBounded(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true, Ending: fakegen.Mute})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Drain: 50 * time.Millisecond})
	answer := s.open(t.Context(), "/v1/chat/completions", streamedChat)
	s.stop()
	rest, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(rest), `"code":"shutdown"`) || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestSecondSignal: the end of patience ends a drain at once.
func TestSecondSignal(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Chat: true, Ending: fakegen.Mute})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}})
	answer := s.open(t.Context(), "/v1/chat/completions", streamedChat)
	s.stop()
	eventually(t, "it drains", s.draining.Load)
	s.cut()
	rest, err := io.ReadAll(answer.Body)
	if err != nil || !strings.Contains(string(rest), `"code":"shutdown"`) {
		t.Errorf("%q, %v", rest, err)
	}
}
