package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client/internal/fakegen"
)

// TestSlowReader: a client that does not read loses its answer, and others wait for nothing.
func TestSlowReader(t *testing.T) {
	pieces := make([]string, 400)
	for i := range pieces {
		pieces[i] = strings.Repeat("x", 32<<10) // 12 MiB, more than sockets hold
	}
	s := serveFake(t, fakegen.Script{Chat: true, Pieces: pieces},
		func(g *Gateway) { g.times.stall = 2 * time.Second })
	conn, err := net.Dial("tcp", s.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
		len(streamedChat), streamedChat)
	eventually(t, "it runs", func() bool { return s.running.Load() == 1 })
	if status, body := s.post("/v1/chat/completions", streamedChat); status != 200 || len(body) < 12<<20 {
		t.Errorf("another client: %d, %d bytes", status, len(body))
	}
	eventually(t, "the slow client's request has ended", func() bool { return s.running.Load() == 0 })
}

// TestBodiesAreBounded: in bytes, in time, and in the share of a user.
func TestBodiesAreBounded(t *testing.T) {
	hasty := serveFake(t, fakegen.Script{Chat: true}, func(g *Gateway) { g.times.body = 200 * time.Millisecond })
	s := serveFake(t, fakegen.Script{Chat: true}, func(g *Gateway) { g.bodies.total = 2 * maxBody })
	if status, body := s.post("/v1/completions", `{"prompt":"`+strings.Repeat("x", maxBody)+`"}`); status != 413 {
		t.Errorf("a large body: %d %.200s", status, body)
	}
	for _, head := range []string{
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", hasty.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, head)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("an unfinished body: %v", err)
		}
		_ = conn.Close()
	}
	s.bodies.take("somebody", maxBody)
	large := `{"prompt":"` + strings.Repeat("x", maxBody-100) + `"}`
	if status, body := s.post("/v1/completions", large); status != 429 || !strings.Contains(body, "too_many_bytes") {
		t.Errorf("without room: %d %.200s", status, body)
	}
	if status, _ := s.post("/v1/completions", `{"prompt":"x"}`); status != 200 {
		t.Errorf("a small body: %d", status)
	}
	s.bodies.give("somebody", maxBody)
	if used := s.bodies.used; used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}

// TestLargeBodiesAreNotAskedFor: a client that waits for leave to send a body too large gets the error in place of the
// leave.
func TestLargeBodiesAreNotAskedFor(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true})
	for size, want := range map[int]string{maxBody + 1: "HTTP/1.1 413 ", maxBody: "HTTP/1.1 100 Continue\r\n"} {
		for _, path := range []string{"/v1/chat/completions", "/v1/embeddings", "/api/chat"} {
			conn, err := net.Dial("tcp", s.Addresses()[0])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: %d\r\n\r\n",
				path, size)
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, want) {
				t.Errorf("%s of %d bytes: %q, %v", path, size, line, err)
			}
			_ = conn.Close()
		}
	}
}

// TestValuesAreBounded: a body of many small values takes the room of what it becomes.
func TestValuesAreBounded(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true})
	for path, list := range map[string]string{
		"/v1/chat/completions": "messages", "/v1/responses": "input", "/v1/messages": "messages",
	} {
		many := `{"` + list + `":[` + strings.Repeat("{},", maxBody/3-10) + `{}]}`
		if status, body := s.post(path, many); status != 413 || !strings.Contains(body, "too many values") {
			t.Errorf("%s: a body of many messages: %d %.200s", path, status, body)
		}
	}
	s.bodies.take("somebody", maxBodies/2) // less than this body needs is left for one user
	some := `{"messages":[` + strings.Repeat("{},", 400_000) + `{}]}`
	if status, body := s.post("/v1/chat/completions", some); status != 429 {
		t.Errorf("beside another large body: %d %.200s", status, body)
	}
	s.bodies.give("somebody", maxBodies/2)
	variables := `{"messages":[],"chat_template_kwargs":{"a":[` + strings.Repeat("0,", maxVariables/2) + `0]}}`
	status, body := s.post("/v1/chat/completions", variables)
	if status != 400 || !strings.Contains(body, "want at most") {
		t.Errorf("many variables: %d %.200s", status, body)
	}
	if quoted := weight([]byte(`{"a":"[[{{\"[["}`)); quoted != 16+listBytes+2*textBytes {
		t.Errorf("a text of brackets weighs %d", quoted)
	}
	if used := s.bodies.used; used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
}

// TestChunkedBodies: a body of unknown length takes room for the largest only until it has come.
func TestChunkedBodies(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Ending: fakegen.Hang}, func(g *Gateway) { g.bodies.total = 3 * maxBody })
	for range 3 {
		r := s.request("POST", "/v1/chat/completions", streamedChat)
		r.ContentLength = -1
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%+v, %v", answer, err)
		}
		defer answer.Body.Close()
	}
}

// TestHeadersAreBounded: in bytes and in time; and so is the time between two requests.
func TestHeadersAreBounded(t *testing.T) {
	s := serveFake(t, fakegen.Script{},
		func(g *Gateway) { g.times.header, g.times.idle = 50*time.Millisecond, 50*time.Millisecond })
	// The server may close the connection before the client has sent all.
	r := s.request("GET", "/health", "", "X-Large", strings.Repeat("x", 2*maxHeader))
	answer, err := http.DefaultClient.Do(r)
	if err == nil && answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large headers: %d", answer.StatusCode)
	}
	for _, sent := range []string{
		"", "GET /health HTTP/1.1\r\nHost: loc", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", s.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, sent)
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("after %q the connection stays: %v", sent, err)
		}
		_ = conn.Close()
	}
}

func shortTimes(g *Gateway) { g.times.stall, g.times.body = 30*time.Millisecond, 30*time.Millisecond }

// TestIdleConnectionServesAgain: the deadlines of an answer do not outlive it.
func TestIdleConnectionServesAgain(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true}, shortTimes)
	for range 3 {
		for _, body := range []string{streamedChat, someChat} {
			if status, body := s.post("/v1/chat/completions", body); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			time.Sleep(40 * time.Millisecond)
		}
	}
}

// TestLongStream: the time for a body does not end an answer that takes longer.
func TestLongStream(t *testing.T) {
	p := newPacer(t)
	s := serve(t, Options{Generators: []Generator{{Socket: p.socket}}}, shortTimes)
	go func() {
		for range 3 {
			p.token <- true
			time.Sleep(40 * time.Millisecond)
		}
		p.token <- false
	}()
	status, body := s.post("/v1/chat/completions", streamedChat)
	if status != 200 || strings.Count(body, " token") != 3 {
		t.Errorf("%d %s", status, body)
	}
}

// TestConnectionsAreShared: one user may hold half of the connections, and another finds room.
func TestConnectionsAreShared(t *testing.T) {
	s := serveFake(t, fakegen.Script{}, func(g *Gateway) { g.connections.total = 8 })
	var held []net.Conn
	for range 6 {
		conn, err := net.Dial("tcp", s.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		held = append(held, conn)
	}
	eventually(t, "two are closed", func() bool {
		s.connections.mu.Lock()
		defer s.connections.mu.Unlock()
		return s.connections.used == 4
	})
	_ = held[5].SetReadDeadline(time.Now().Add(time.Second))
	if _, err := held[5].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the sixth connection: %v", err)
	}
	if !s.connections.take("another user", 1) {
		t.Error("another user finds no room")
	}
}
