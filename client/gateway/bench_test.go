package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// pacer is a stand-in for a generator that sends a token whenever it is told to.
type pacer struct {
	socket string
	token  chan bool // false ends the request
}

func newPacer(t testing.TB) *pacer {
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	p := &pacer{filepath.Join(dir, "g.sock"), make(chan bool)}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), os.RemoveAll(dir) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *pacer) serve(conn net.Conn) {
	frames := protocol.FrameReader{R: bufio.NewReader(conn)}
	send := func(m any) {
		frame, _ := protocol.AppendFrame(nil, m)
		_, _ = conn.Write(frame)
	}
	for {
		body, err := frames.Next()
		if err != nil {
			return
		}
		message, _ := protocol.DecodeRequest(body)
		switch m := message.(type) {
		case *protocol.Hello:
			send(&protocol.Welcome{Version: 1, Model: "fake", Chat: true, Limits: protocol.Limits{
				Context: 1 << 18, MaxBatch: 8, Vocab: 4096, PromptBytes: 1 << 20, Frame: 1 << 22,
				Requests: 64, Connections: 128, Queue: 512}})
		case *protocol.Generate:
			for i := 0; <-p.token; i++ {
				send(&protocol.Token{ID: m.ID, Index: i, Token: 7, Text: " token"})
			}
			send(&protocol.Done{ID: m.ID, FinishReason: protocol.FinishStop})
		}
	}
}

// BenchmarkTokenOverSocket is the time from a generator's write to the loop of package client.
func BenchmarkTokenOverSocket(b *testing.B) {
	p := newPacer(b)
	c, err := client.Dial(b.Context(), client.Options{Socket: p.socket})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	n := 0
	go func() { p.token <- true }()
	for range c.Generate(b.Context(), client.Request{Prompt: "x", MaxTokens: new(1 << 18)}) {
		if n++; n == 1 {
			b.ResetTimer()
		}
		p.token <- n < min(b.N, 1<<18-1)
	}
}

// BenchmarkTokenOverHTTP is the same through the gateway: the difference is what it adds to ITL.
func BenchmarkTokenOverHTTP(b *testing.B) {
	p := newPacer(b)
	g := serveQuiet(b, p.socket)
	go func() { p.token <- true }()
	answer, err := http.Post(g+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	n := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if !strings.Contains(lines.Text(), " token") {
			continue
		}
		if n++; n == 1 {
			b.ResetTimer()
		}
		p.token <- n < min(b.N, 1<<18-1)
	}
}

// BenchmarkFirstTokenOverSocket is the time from a request to its only token and its end.
func BenchmarkFirstTokenOverSocket(b *testing.B) {
	p := newPacer(b)
	c, err := client.Dial(b.Context(), client.Options{Socket: p.socket})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		go func() { p.token <- true; p.token <- false }()
		for range c.Generate(b.Context(), client.Request{Messages: []client.Message{{Role: "user", Content: "x"}}}) {
			continue
		}
	}
}

// BenchmarkFirstTokenOverHTTP is the same through the gateway: the difference is what it adds to TTFT.
func BenchmarkFirstTokenOverHTTP(b *testing.B) {
	p := newPacer(b)
	g := serveQuiet(b, p.socket)
	for b.Loop() {
		go func() { p.token <- true; p.token <- false }()
		answer, err := http.Post(g+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

// BenchmarkChunk is the work on one token's event, without its write.
func BenchmarkChunk(b *testing.B) {
	s := (&Gateway{o: Options{Ping: time.Hour}}).newStream(nowhere{httptest.NewRecorder()}, true)
	defer s.end()
	c := &chatStream{events: events{envelope: newEnvelope("chatcmpl-", "chat.completion.chunk", model{name: "fake"}),
		stream: s, choices: 1}, began: []bool{true}}
	t := &client.Token{Text: " token"}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.token(0, t); err != nil {
			b.Fatal(err)
		}
	}
}

// nowhere writes nothing.
type nowhere struct{ *httptest.ResponseRecorder }

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// serveQuiet starts a gateway and returns its URL.
func serveQuiet(b *testing.B, socket string) string {
	g, err := New(Options{
		Listen: []string{"127.0.0.1:0"}, Generators: []Generator{{Socket: socket}}, Logger: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, ctx) }()
	b.Cleanup(func() { stop(); <-done })
	return "http://" + g.Addresses()[0]
}
