// Package stub imitates a generator in tests of measurements: it speaks the protocol and
// sends tokens at given times.
package stub

import (
	"bufio"
	"cmp"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// Generator describes the stub's behaviour. Don't change its exported fields while it
// serves.
type Generator struct {
	Context  int           // tokens; 0: 512
	First    time.Duration // before the first token
	Each     time.Duration // before each further one
	Buffered bool          // all tokens come at the end
	Error    *protocol.Error
	Graphs   protocol.GraphPool
	Rolls    bool // count one more rolled graph for each request
	Loading  int  // hellos answered with loading

	mu     sync.Mutex
	hellos int
	rolled uint64
}

// Listen serves g on a socket until the test ends, and returns its path.
func (g *Generator) Listen(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel-bench-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "generator.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), os.RemoveAll(dir) })
	go g.Accept(l)
	return l.Addr().String()
}

// Accept serves connections to l until l is closed.
func (g *Generator) Accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go g.serve(conn)
	}
}

// session is one connection.
type session struct {
	*Generator
	conn    net.Conn
	sending sync.Mutex
}

// serve answers one connection until the client closes it.
func (g *Generator) serve(conn net.Conn) {
	defer conn.Close()
	s := &session{Generator: g, conn: conn}
	frames := protocol.FrameReader{R: bufio.NewReader(conn)}
	for {
		body, err := frames.Next()
		if err != nil {
			return
		}
		message, err := protocol.DecodeRequest(body)
		if err != nil {
			return
		}
		s.answer(message)
	}
}

func (s *session) answer(message any) {
	switch m := message.(type) {
	case *protocol.Hello:
		s.send(s.greeting())
	case *protocol.StatusRequest:
		s.mu.Lock()
		s.Graphs.Rolled = s.rolled
		s.mu.Unlock()
		s.send(&protocol.Status{
			State: protocol.StateReady, Version: "1234567", Model: "stub", Device: "host",
			PID: os.Getpid(), Progress: 1, Graphs: s.Graphs,
			Machine: protocol.Machine{Name: "stub", MemoryUsed: 2e9, MemoryTotal: 8e9},
			Shape:   protocol.Shape{Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2},
		})
	case *protocol.Generate:
		if s.Error != nil {
			s.send(s.Error.For(m.ID))
			return
		}
		go s.generate(m)
	}
}

func (s *session) greeting() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hellos++; s.hellos <= s.Loading {
		return protocol.Errorf(protocol.CodeLoading, "", "the model is being loaded")
	}
	return &protocol.Welcome{Version: protocol.Version, Model: "stub",
		Limits: protocol.Limits{Context: cmp.Or(s.Context, 512), Vocab: 100}}
}

func (s *session) generate(m *protocol.Generate) {
	if s.Rolls {
		s.mu.Lock()
		s.rolled++
		s.mu.Unlock()
	}
	pause := s.First
	var held time.Duration
	for i := range *m.MaxTokens {
		if s.Buffered {
			held, pause = held+pause, 0
		}
		sleep(pause)
		if !s.Buffered {
			s.send(&protocol.Token{ID: m.ID, Index: i})
		}
		pause = s.Each
	}
	sleep(held)
	for i := 0; s.Buffered && i < *m.MaxTokens; i++ {
		s.send(&protocol.Token{ID: m.ID, Index: i})
	}
	s.send(&protocol.Done{
		ID: m.ID, FinishReason: protocol.FinishLength,
		Usage:  protocol.Usage{PromptTokens: len(m.Tokens), CompletionTokens: *m.MaxTokens},
		Graphs: protocol.Graphs{Eager: *m.MaxTokens},
	})
}

func sleep(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

func (s *session) send(message any) {
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		panic(err)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_, _ = s.conn.Write(frame) // The reading side notices a client that is gone.
}
