//go:build linux

package e2e

import (
	"bytes"
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const memoryBound = 16 << 10 // kB of memory that a bad input may take

// wantMemory checks the generator's memory during do, at its peak and afterwards. If do calls wantMemory, the outer
// peak starts with the last inner call.
func (g *generator) wantMemory(do func()) {
	g.t.Helper()
	before := g.kilobytes("VmRSS")
	reset := os.WriteFile(proc(g.cmd.Process.Pid, "clear_refs"), []byte("5"), 0) // resets the peak
	do()
	peak, after := g.kilobytes("VmHWM"), g.kilobytes("VmRSS")
	if reset != nil {
		peak = after
	}
	if !raceEnabled && max(peak, after)-before > memoryBound {
		g.t.Errorf("%d kB before, %d at the peak, %d after", before, peak, after)
	}
}

// on runs a subtest on the generator.
func (g *generator) on(t *testing.T, name string, test func(g *generator)) {
	t.Run(name, func(t *testing.T) {
		p := *g
		inner := *g.process
		inner.t, p.process = t, &inner
		test(&p)
	})
}

// hostile returns inputs that end the connection with bad_frame.
func hostile() map[string][]byte {
	field := func(value ...byte) []byte { // {"type":"hello","x":value}
		return framed(append([]byte("\x82\xa4type\xa5hello\xa1x"), value...))
	}
	junk := bytes.Repeat([]byte{0xc1, 0xff, 0x00, 0x9f, 0xdd}, protocol.MaxFrame/5)
	return map[string][]byte{
		"no body":                    {0, 0, 0, 0},
		"a byte too long":            {0, 64, 0, 1},
		"4 GiB declared":             {255, 255, 255, 255, 1, 2, 3},
		"text instead of a frame":    []byte("GET / HTTP/1.1\r\n\r\n"),
		"dd ff ff ff ff":             framed([]byte{0xdd, 255, 255, 255, 255}),
		"4 G pairs declared":         framed([]byte{0xdf, 255, 255, 255, 255}),
		"4 G elements in a field":    field(0xdd, 255, 255, 255, 255),
		"4 GiB of text declared":     field(0xdb, 255, 255, 255, 255),
		"4 GiB of bytes declared":    field(0xc6, 255, 255, 255, 255),
		"17 deep":                    field(append(bytes.Repeat([]byte{0x91}, 16), 1)...),
		"4 million lists deep":       field(append(bytes.Repeat([]byte{0x91}, 4_000_000), 1)...),
		"4 million maps deep":        field(append(bytes.Repeat([]byte{0x81, 0xa0}, 2_000_000), 1)...),
		"4 MiB of junk":              framed(junk),
		"4 MiB of junk, not framed":  append([]byte{0, 0x3f, 0xff, 0}, junk...),
		"a list, not a map":          framed([]byte{0x91, 1}),
		"bytes behind the map":       framed([]byte{0x80, 0x80}),
		"an extension":               field(0xd4, 1, 1),
		"a string that is not UTF-8": field(0xa1, 0xff),
		"a key that is not a string": framed([]byte{0x81, 1, 1}),
		"half a frame, then the next": append([]byte{0, 0, 0, 29},
			framed([]byte("\x82\xa4type\xa5hello\xa7version\x01tail"))...),
	}
}

func TestHostileFrames(t *testing.T) {
	g := serve(t)
	g.works()
	g.wantMemory(func() {
		for name, input := range hostile() {
			g.on(t, name, func(g *generator) { g.wantMemory(func() { g.refuses(input) }) })
		}
	})
	g.quiet()
}

// refuses sends a hostile input on two connections, before welcome and after it, and checks that both are closed.
func (g *generator) refuses(input []byte) {
	for _, p := range []*peer{g.dial(), g.peer()} {
		_, _ = p.conn.Write(input) // the generator may close the connection first
		p.wantClosed(protocol.CodeBadFrame)
		_ = p.conn.Close()
		g.works()
	}
}

// longText changes a request's prompt to a text of n bytes.
func longText(n int) func(*protocol.Generate) {
	return func(m *protocol.Generate) { m.Tokens, m.Prompt = nil, new(strings.Repeat("a", n)) }
}

// sameToken changes a request's prompt to n times a token.
func sameToken(n int, id int32) func(*protocol.Generate) {
	return func(m *protocol.Generate) {
		m.Tokens = make([]int32, n)
		for i := range m.Tokens {
			m.Tokens[i] = id
		}
	}
}

// refused returns changes that make a good request a bad one, by error code and name.
func refused(l protocol.Limits) map[string]map[string]func(*protocol.Generate) {
	return map[string]map[string]func(*protocol.Generate){
		protocol.CodePromptTooLong: {
			"text":         longText(l.PromptBytes + 1),
			"4 MB of text": longText(4_000_000),
			"text, by token": func(m *protocol.Generate) {
				m.Tokens, m.Prompt = nil, new(strings.Repeat("?!", l.Context))
			},
			"tokens":         sameToken(l.Context, 1),
			"4 MB of tokens": sameToken(4_000_000, 1),
		},
		protocol.CodeBadRequest: {
			"token too high":       sameToken(1, int32(l.Vocab)),
			"token below 0":        sameToken(1, -1),
			"no prompt":            func(m *protocol.Generate) { m.Tokens = nil },
			"no text":              longText(0),
			"no tokens to make":    func(m *protocol.Generate) { m.MaxTokens = new(0) },
			"too many to make":     func(m *protocol.Generate) { m.MaxTokens = new(l.Context + 1) },
			"temperature below 0":  func(m *protocol.Generate) { m.Temperature = new(-0.1) },
			"temperature NaN":      func(m *protocol.Generate) { m.Temperature = new(math.NaN()) },
			"temperature infinite": func(m *protocol.Generate) { m.Temperature = new(math.Inf(1)) },
			"top_k below 0":        func(m *protocol.Generate) { m.TopK = new(-1) },
			"top_p NaN":            func(m *protocol.Generate) { m.TopP = new(math.NaN()) },
			"top_p of 0":           func(m *protocol.Generate) { m.TopP = new(0.0) },
			"min_p infinite":       func(m *protocol.Generate) { m.MinP = new(math.Inf(1)) },
			"repeat_penalty -1":    func(m *protocol.Generate) { m.RepeatPenalty = new(-1.0) },
			"17 stops":             func(m *protocol.Generate) { m.Stop = strings.Split(strings.Repeat("x", 17), "") },
			"a long stop":          func(m *protocol.Generate) { m.Stop = []string{strings.Repeat("x", 257)} },
			"a stop of nothing":    func(m *protocol.Generate) { m.Stop = []string{""} },
			"21 logprobs":          func(m *protocol.Generate) { m.Logprobs = new(21) },
		},
	}
}

// answers checks that a changed request is refused with code, and that a good one on the same connection succeeds.
func (g *generator) answers(code string, change func(*protocol.Generate)) {
	g.t.Helper()
	p := g.peer()
	defer p.conn.Close()
	m := &protocol.Generate{ID: 7, Tokens: []int32{0}, MaxTokens: new(2)}
	change(m)
	p.send(m)
	if e := expect[*protocol.Error](p); e.Code != code || e.ID == nil || *e.ID != 7 || e.Hint == "" {
		g.t.Errorf("got %+v", e)
	}
	p.send(&protocol.Generate{ID: 7, Tokens: []int32{0}, MaxTokens: new(2), IgnoreEOS: true})
	until(p, func(d *protocol.Done) bool { return d.Usage.CompletionTokens == 2 })
}

// A request out of bounds gets a typed error with its id; the connection and its other requests go on.
func TestRefusedRequests(t *testing.T) {
	g := serve(t)
	g.works()
	g.wantMemory(func() {
		for code, changes := range refused(g.limits) {
			for name, change := range changes {
				g.on(t, code+" "+name, func(g *generator) { g.wantMemory(func() { g.answers(code, change) }) })
			}
		}
	})
	g.works()
	if s := g.status(); s.Requests.Refused == 0 {
		t.Errorf("refused requests are not counted: %+v", s.Requests)
	}
}

// Unfinished frames share 8 MiB. A connection that needs more is closed, while small frames pass.
func TestUnfinishedFrames(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.works()
	begun := append([]byte{0, 0x40, 0, 0}, make([]byte, protocol.MaxFrame-1)...)
	g.wantMemory(func() {
		const flooders = 100
		over := make(chan struct{}, flooders)
		for range flooders {
			p := g.peer()
			go func() {
				_, _ = p.conn.Write(begun)
				if e, _ := p.read(); e != nil && e.(*protocol.Error).Code == protocol.CodeOverloaded {
					over <- struct{}{}
				}
			}()
		}
		for range flooders - 2 { // there is memory for two at most
			select {
			case <-over:
			case <-time.After(patience):
				t.Fatal("no connection is told overloaded")
			}
		}
		g.works()
	})
}

// The 129th connection is refused. When one is closed, another is accepted.
func TestConnections(t *testing.T) {
	g := serve(t)
	g.works()
	g.quiet()
	g.wantMemory(func() {
		var all []*peer
		for range g.limits.Connections {
			all = append(all, g.peer())
		}
		for range 6 {
			p := g.dial()
			p.wantClosed(protocol.CodeTooManyConnections)
			_ = p.conn.Close()
		}
		g.reel("one more").start().wantExit(75)
		all[5].send(&protocol.Generate{ID: 1, Tokens: []int32{0}, MaxTokens: new(2)})
		until(all[5], func(*protocol.Done) bool { return true })
		for _, p := range all {
			_ = p.conn.Close()
		}
		g.eventually("another connection is accepted", func() bool {
			_, err := client.ReadStatus(context.Background(), client.Options{Socket: g.socket})
			return err == nil
		})
	})
	g.quiet()
	g.works()
}

// The 65th request of a connection is refused, and so is an id that is in use.
func TestRequestsOfAConnection(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.works()
	p := g.peer()
	var frames []byte
	for id := range uint64(g.limits.Requests) {
		frames, _ = protocol.AppendFrame(frames, g.endless(id))
	}
	frames, _ = protocol.AppendFrame(frames, g.endless(1000)) // one more
	frames, _ = protocol.AppendFrame(frames, g.endless(3))    // in use
	if _, err := p.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	more := until(p, func(*protocol.Error) bool { return true })
	twice := until(p, func(*protocol.Error) bool { return true })
	if more.Code != protocol.CodeTooManyRequests || *more.ID != 1000 ||
		twice.Code != protocol.CodeDuplicateID || *twice.ID != 3 {
		t.Errorf("got %+v and %+v", more, twice)
	}
	p.send(&protocol.Cancel{ID: 3})
	until(p, func(d *protocol.Done) bool { return d.ID == 3 && d.FinishReason == protocol.FinishCancelled })
	p.send(&protocol.Generate{ID: 3, Tokens: []int32{0}, MaxTokens: new(1), IgnoreEOS: true})
	until(p, func(d *protocol.Done) bool { return d.ID == 3 && d.FinishReason == protocol.FinishLength })
	_ = p.conn.Close()
	g.quiet()
	g.works()
}
