package client

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"reel.internal/reel/protocol"
)

// testBounds has a shorter queue than a Client's, so that a test fills it sooner.
var testBounds = bounds{queued: 4 << 20, text: maxTokenText, allowance: true}

const (
	floodBytes = 32 << 20 // sent by a generator in these tests; a client without bounds holds them all
	heldBytes  = 12 << 20 // limit on the client's heap by then: the queue and the rest
)

// standing begins a loop that takes one token and then blocks until goOn is closed. The
// loop's last error is sent to ended.
func standing(t *testing.T, c *Client, req Request) (goOn chan<- struct{}, ended <-chan error) {
	t.Helper()
	began, wait, end := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		var last error
		first := true
		for _, err := range c.Generate(context.Background(), req) {
			if last = err; first {
				first = false
				close(began)
				<-wait
			}
		}
		end <- last
	}()
	select {
	case <-began:
	case <-deadline(t):
		t.Fatal("no token arrived")
	}
	return wait, end
}

// flood sends message repeatedly, about size bytes in all, and returns early if the
// client closes the connection.
func flood(conn net.Conn, size int, message any) {
	frame, err := protocol.AppendFrame(nil, message)
	if err != nil {
		panic(err)
	}
	batch := []byte(strings.Repeat(string(frame), max(1, 1<<16/len(frame))))
	for sent := 0; sent < size; sent += len(batch) {
		if _, err := conn.Write(batch); err != nil {
			return
		}
	}
}

// heap returns the live bytes of the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the second collection frees the contents of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// drain reads everything the client sends, so that its writes don't block.
func drain(conn net.Conn) {
	for {
		if _, err := protocol.ReadFrame(conn, 0, nil); err != nil {
			return
		}
	}
}

// flooded returns a client with bounds b whose request 1 has received one token and is
// not read further.
func flooded(t *testing.T, b bounds, req Request) (
	c *Client, generator net.Conn, goOn chan<- struct{}, ended <-chan error,
) {
	t.Helper()
	c, generator = raw(t)
	c.bounds = b
	go func() {
		_, _ = protocol.ReadFrame(generator, 0, nil)
		sendRaw(generator, &Token{ID: 1})
		drain(generator)
	}()
	goOn, ended = standing(t, c, req)
	return c, generator, goOn, ended
}

var (
	longText = strings.Repeat("x", maxTokenText)
	manyAsk  = Request{Prompt: "x", MaxTokens: new(math.MaxInt32), Logprobs: new(20)}
	fewAsk   = Request{Prompt: "x", MaxTokens: new(100)}
)

// alternatives returns n empty alternatives.
func alternatives(n int) []protocol.TopToken { return make([]protocol.TopToken, n) }

// TestFloodIsBounded: a generator that floods a blocked loop can't make the client hold
// more than its bound, with any message.
func TestFloodIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		message any
		bytes   int
		want    error // at the end of the loop
	}{
		"long tokens":       {manyAsk, &Token{ID: 1, Text: longText}, floodBytes, ErrSlowLoop},
		"short tokens":      {manyAsk, &Token{ID: 1, Text: "x"}, floodBytes / 6, ErrSlowLoop},
		"tokens with lists": {manyAsk, &Token{ID: 1, Top: alternatives(20)}, floodBytes / 4, ErrSlowLoop},
		"too many tokens":   {fewAsk, &Token{ID: 1, Text: "x"}, floodBytes, ErrConnectionLost},
		"a giant list":      {manyAsk, &Token{ID: 1, Top: alternatives(100_000)}, floodBytes, ErrConnectionLost},
		"a giant text":      {manyAsk, &Token{ID: 1, Text: strings.Repeat(longText, 9)}, floodBytes, ErrConnectionLost},
		"tokens of nobody":  {manyAsk, &Token{ID: 99, Text: longText}, floodBytes, nil},
		"ends of nobody":    {manyAsk, &Done{ID: 99, FinishReason: longText}, floodBytes, nil},
		"unasked statuses":  {manyAsk, &Status{Doing: longText}, floodBytes, nil},
		"unasked ids":       {manyAsk, &protocol.Tokens{Tokens: make([]int32, 1<<16)}, floodBytes / 16, nil},
		"welcome again":     {manyAsk, &protocol.Welcome{Model: longText}, floodBytes, nil},
		"errors without id": {manyAsk, &Error{Code: "x", Message: longText}, floodBytes, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			client, generator, goOn, ended := flooded(t, testBounds, c.request)
			flood(generator, c.bytes, c.message)
			if held := heap() - before; held > heldBytes {
				t.Errorf("%d MiB held, at most %d", held>>20, heldBytes>>20)
			}
			if c.want == nil {
				sendRaw(generator, &Done{ID: 1, FinishReason: protocol.FinishStop})
			}
			close(goOn)
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("the loop ended with %v, want %v", err, c.want)
			}
			if held := client.queued.Load(); held != 0 {
				t.Errorf("%d bytes are still counted at the end", held)
			}
		})
	}
}

// TestFloodWithoutABound: without one of the bounds, its flood is held.
func TestFloodWithoutABound(t *testing.T) {
	for name, c := range map[string]struct {
		lift    func(*bounds)
		message any
		held    int64 // bytes, at least
	}{
		"queued": {func(b *bounds) { b.queued = math.MaxInt64 }, &Token{ID: 1, Text: longText}, floodBytes - 1<<20},
		"text": {func(b *bounds) { b.text = math.MaxInt },
			&Token{ID: 1, Text: strings.Repeat(longText, 63)}, 63 * maxTokenText},
		"asked": {func(b *bounds) { b.allowance = false }, &Token{ID: 1, Top: alternatives(80_000)}, 80_000 * 32},
	} {
		t.Run(name, func(t *testing.T) {
			b := testBounds
			c.lift(&b)
			client, generator, goOn, ended := flooded(t, b, manyAsk)
			size := 1
			if name == "queued" {
				size = floodBytes
			}
			flood(generator, size, c.message)
			sendRaw(generator, &Status{}) // once written, the client has read everything before it
			if held := client.queued.Load(); held < c.held {
				t.Errorf("%d KiB held of %d KiB sent", held>>10, c.held>>10)
			}
			client.Close()
			close(goOn)
			<-ended
		})
	}
}

// TestSlowLoopIsDroppedAlone: only the loop with the longest queue is dropped, and its
// request cancelled. Another loop, although it lags too, loses nothing.
func TestSlowLoopIsDroppedAlone(t *testing.T) {
	c, generator := raw(t)
	c.bounds = testBounds
	cancelled := make(chan uint64, 1)
	go func() {
		frames := protocol.FrameReader{R: generator}
		for {
			body, err := frames.Next()
			if err != nil {
				return
			}
			switch m, _ := protocol.DecodeRequest(body); m := m.(type) {
			case *protocol.Generate:
				go sendRaw(generator, &Token{ID: m.ID})
			case *protocol.Cancel:
				cancelled <- m.ID
			}
		}
	}()
	slowOn, slow := standing(t, c, manyAsk)
	otherOn, other := standing(t, c, manyAsk)
	flood(generator, 1<<20, &Token{ID: 2, Text: longText})
	flood(generator, 8<<20, &Token{ID: 1, Text: longText})
	sendRaw(generator, &Done{ID: 2, FinishReason: protocol.FinishStop})
	close(otherOn)
	if err := <-other; err != nil {
		t.Errorf("the other loop ended with %v", err)
	}
	close(slowOn)
	if err := <-slow; !errors.Is(err, ErrSlowLoop) {
		t.Errorf("the slow loop ended with %v", err)
	}
	select {
	case id := <-cancelled:
		if id != 1 {
			t.Errorf("request %d was cancelled", id)
		}
	case <-deadline(t):
		t.Error("the slow loop's request was not cancelled")
	}
}

// TestSizesMatchTheHeap: the counted size of a message is close to its bytes on the heap,
// so the bound holds, and the longest plain completion fits it.
func TestSizesMatchTheHeap(t *testing.T) {
	const n = 5000
	for _, token := range []*Token{
		{ID: 1, Index: 70_000, Token: 100_000, Text: " token"},
		{ID: 1, Index: 70_000, Token: 100_000, Text: " token", Logprob: new(-0.5),
			Top: slices.Repeat([]protocol.TopToken{{Token: 70_000, Text: " token", Logprob: -1}}, 20)},
	} {
		frame, err := protocol.AppendFrame(nil, token)
		if err != nil {
			t.Fatal(err)
		}
		s, before := newStream(new(atomic.Int64)), heap()
		for range n {
			message, err := protocol.DecodeReply(frame[4:])
			if err != nil {
				t.Fatal(err)
			}
			s.push(message)
		}
		took, counted := (heap()-before)/n, s.queued.Load()/n
		if took > counted*5/4 || took < counted/2 {
			t.Errorf("a token with %d alternatives takes %d bytes, but counts as %d", len(token.Top), took, counted)
		}
		if s.close(nil); s.queued.Load() != 0 {
			t.Errorf("%d bytes are counted of an empty queue", s.queued.Load())
		}
	}
	if plain := sizeOf(&Token{Text: " token"}) * protocol.MaxElements; plain > maxQueued {
		t.Errorf("a completion that fills the context takes %d MiB", plain>>20)
	}
}
