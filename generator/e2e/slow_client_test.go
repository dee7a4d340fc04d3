//go:build linux

package e2e

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// verbose returns a request for the largest token messages.
func (g *generator) verbose(id uint64) *protocol.Generate {
	m := g.endless(id)
	m.Logprobs = new(protocol.MaxLogprobs)
	return m
}

// A client that does not read is disconnected and its requests are cancelled: at 1 MiB of unsent bytes, or with less
// if it has read nothing for 5 s. Another client gets its tokens meanwhile.
func TestClientsThatDoNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: it waits for megabytes of tokens")
	}
	t.Parallel()
	g := serve(t)
	other := g.client()
	want := ask(other, greedy([]int32{0}, 300))
	flood, trickle := g.peer(), g.peer()
	for id := range uint64(8) {
		flood.send(g.verbose(id)) // 8 MB
	}
	trickle.send(g.verbose(0)) // more than a socket's buffer, less than 1 MiB
	for g.status().Connections > 1 {
		if got := ask(other, greedy([]int32{0}, 300)); !slices.Equal(got.ids(), want.ids()) {
			t.Fatalf("another client's result changed: %+v", got)
		}
		time.Sleep(300 * time.Millisecond) // so that tests beside this one have the processor
	}
	other.Close()
	g.quiet()
	for _, p := range []*peer{flood, trickle} {
		if err := p.drain(); err == nil {
			t.Error("the connection is still open")
		}
	}
	s := g.status()
	if s.Requests.Cancelled+s.Requests.Failed < 8 {
		t.Errorf("the requests of a disconnected client go on: %+v", s.Requests)
	}
}

// A client that asks for the status over and over and reads no answer is disconnected as well.
func TestFloodOfQuestions(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.works()
	g.wantMemory(func() {
		p := g.peer()
		var questions []byte
		for range 1000 {
			questions, _ = protocol.AppendFrame(questions, &protocol.StatusRequest{})
		}
		for err := error(nil); err == nil; {
			_, err = p.conn.Write(questions)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the client is not disconnected")
			}
		}
		_ = p.conn.Close()
		g.quiet()
	})
	g.works()
}

// drain reads to the end of the connection, and returns the error that ended it.
func (p *peer) drain() error {
	buf := make([]byte, 1<<16)
	for {
		if _, err := p.conn.Read(buf); err != nil {
			return err
		}
	}
}

// A frame that is not completed in 30 s ends its connection, even if bytes keep coming, and so does silence before
// hello. After welcome a connection may be silent.
func TestSlowFramesAndSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	g := serve(t)
	silent, half, idle := g.dial(), g.peer(), g.peer()
	if _, err := half.conn.Write([]byte{0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	loris := g.dial()
	go func() { // a byte each second, until the connection ends
		for _, b := range framed(make([]byte, 1000)) {
			if _, err := loris.conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	begun := time.Now()
	half.wantClosed(protocol.CodeBadFrame)
	if d := time.Since(begun); d < protocol.FrameTimeout/2 {
		t.Errorf("an unfinished frame ended its connection after %v", d)
	}
	silent.wantClosed(protocol.CodeHelloRequired)
	loris.wantClosed(protocol.CodeBadFrame)
	idle.send(&protocol.Generate{ID: 1, Tokens: []int32{0}, MaxTokens: new(2)})
	until(idle, func(*protocol.Done) bool { return true })
	_ = idle.conn.Close()
	g.quiet()
}

// With 512 requests in the queue, the next gets the error busy, and the client exits with 75.
func TestBusy(t *testing.T) {
	g := serve(t)
	room := g.limits.MaxBatch + g.limits.Queue
	var peers []*peer
	for sent := 0; sent < room; sent += g.limits.Requests {
		p := g.peer()
		peers = append(peers, p)
		var frames []byte
		for id := range uint64(min(g.limits.Requests, room-sent)) {
			frames, _ = protocol.AppendFrame(frames, g.endless(id))
		}
		if _, err := p.conn.Write(frames); err != nil {
			t.Fatal(err)
		}
		go func() { _ = p.drain() }()
	}
	g.eventually("the queue is full", func() bool {
		r := g.status().Requests
		return r.Running == g.limits.MaxBatch && r.Waiting == g.limits.Queue
	})
	late := g.peer()
	late.send(g.endless(1))
	if e := expect[*protocol.Error](late); e.Code != protocol.CodeBusy || *e.ID != 1 {
		t.Errorf("got %+v", e)
	}
	g.reel("late").start().wantExit(75)
	for _, p := range append(peers, late) {
		_ = p.conn.Close()
	}
	g.quiet()
	g.works()
}
