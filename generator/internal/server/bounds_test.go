package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// hostile returns inputs after which the server cannot find the next frame.
func hostile() map[string][]byte {
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	field := func(value ...byte) []byte { // {"type":"hello","x":value}
		return frame(append([]byte("\x82\xa4type\xa5hello\xa1x"), value...)...)
	}
	return map[string][]byte{
		"no body":                 {0, 0, 0, 0},
		"a byte too long":         {0, 64, 0, 1},
		"4 GiB declared":          {255, 255, 255, 255, 1, 2, 3},
		"text instead of a frame": []byte("GET / HTTP/1.1\r\n\r\n"),
		"4 G elements declared":   frame(0xdd, 255, 255, 255, 255),
		"4 G pairs declared":      frame(0xdf, 255, 255, 255, 255),
		"4 G elements in a field": field(0xdd, 255, 255, 255, 255),
		"4 GiB of text declared":  field(0xdb, 255, 255, 255, 255),
		"4 GiB of bytes declared": field(0xc6, 255, 255, 255, 255),
		"nested 17 deep":          field(append(bytes.Repeat([]byte{0x91}, 16), 1)...),
		"nested 2 million deep":   field(append(bytes.Repeat([]byte{0x91}, 2_000_000), 1)...),
		"a list, not a map":       frame(0x91, 1),
		"a key, not a string":     frame(0x81, 1, 1),
		"bytes after the map":     frame(0x80, 0x80),
		"an extension":            field(0xd4, 1, 1),
		"a string, not UTF-8":     field(0xa1, 0xff),
	}
}

func TestHostileFrames(t *testing.T) {
	f := ready(t, nil)
	f.works()
	for name, input := range hostile() {
		t.Run(name, func(t *testing.T) {
			for _, welcomed := range []bool{false, true} {
				wantMemory(t, func() {
					c := f.dial()
					defer c.conn.Close()
					if welcomed {
						c = f.client()
					}
					_, _ = c.conn.Write(input) // the server may close before it has read all
					if code := c.closedAfter(); code != protocol.CodeBadFrame {
						t.Errorf("welcomed %t: got %q", welcomed, code)
					}
				})
				f.works()
			}
		})
	}
}

// outOfBounds returns requests that are out of bounds.
func outOfBounds() map[string]struct {
	code string
	g    *protocol.Generate
} {
	type entry = struct {
		code string
		g    *protocol.Generate
	}
	with := func(code string, change func(*protocol.Generate)) entry {
		g := generate(5, "ab", 3)
		change(g)
		return entry{code, g}
	}
	number := func(set func(*protocol.Generate, *float64), v float64) entry {
		return with(protocol.CodeBadRequest, func(g *protocol.Generate) { set(g, &v) })
	}
	temperature := func(g *protocol.Generate, v *float64) { g.Temperature = v }
	topP := func(g *protocol.Generate, v *float64) { g.TopP = v }
	minP := func(g *protocol.Generate, v *float64) { g.MinP = v }
	penalty := func(g *protocol.Generate, v *float64) { g.RepeatPenalty = v }
	bad, long := protocol.CodeBadRequest, protocol.CodePromptTooLong
	text := func(bytes int) entry {
		return with(long, func(g *protocol.Generate) { g.Prompt = ptr(strings.Repeat("a", bytes)) })
	}
	return map[string]entry{
		"no prompt":             with(bad, func(g *protocol.Generate) { g.Prompt = nil }),
		"two prompts":           with(bad, func(g *protocol.Generate) { g.Tokens = []int32{1} }),
		"an empty prompt":       with(bad, func(g *protocol.Generate) { g.Prompt = ptr("") }),
		"a prompt of 0 tokens":  with(bad, func(g *protocol.Generate) { g.Prompt = ptr("?") }),
		"an untokenizable text": with(bad, func(g *protocol.Generate) { g.Prompt = ptr("!") }),
		"a token without a row": with(bad, func(g *protocol.Generate) { g.Prompt = ptr("x[PAD]") }),
		"text too long":         text(2*testContext + 1),
		"4 MB of text":          text(4_000_000),
		"text of many tokens":   text(testContext),
		"too many tokens":       with(long, tokens(testContext, 1)),
		"4 million tokens":      with(long, tokens(4_000_000, 1)),
		"a token too high":      with(bad, tokens(3, testVocab)),
		"a negative token":      with(bad, tokens(3, -1)),
		"zero max_tokens":       with(bad, func(g *protocol.Generate) { g.MaxTokens = ptr(0) }),
		"negative max_tokens":   with(bad, func(g *protocol.Generate) { g.MaxTokens = ptr(-1) }),
		"huge max_tokens":       with(bad, func(g *protocol.Generate) { g.MaxTokens = ptr(math.MaxInt) }),
		"negative top_k":        with(bad, func(g *protocol.Generate) { g.TopK = ptr(-1) }),
		"21 logprobs":           with(bad, func(g *protocol.Generate) { g.Logprobs = ptr(21) }),
		"17 stop strings":       with(bad, func(g *protocol.Generate) { g.Stop = make([]string, 17) }),
		"an empty stop string":  with(bad, func(g *protocol.Generate) { g.Stop = []string{""} }),
		"a long stop string":    with(bad, func(g *protocol.Generate) { g.Stop = []string{strings.Repeat("x", 257)} }),
		"negative temperature":  number(temperature, -0.1),
		"infinite temperature":  number(temperature, math.Inf(1)),
		"NaN temperature":       number(temperature, math.NaN()),
		"NaN top_p":             number(topP, math.NaN()),
		"negative top_p":        number(topP, -1),
		"infinite min_p":        number(minP, math.Inf(1)),
		"NaN repeat_penalty":    number(penalty, math.NaN()),
	}
}

func tokens(n int, id int32) func(*protocol.Generate) {
	return func(g *protocol.Generate) {
		g.Prompt, g.Tokens = nil, sameTokens(n, id)
	}
}

func sameTokens(n int, id int32) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = id
	}
	return list
}

// A request out of bounds gets a typed error with its id. The engine does not see it, and
// the connection continues.
func TestRefusedRequests(t *testing.T) {
	f := ready(t, nil)
	for name, c := range outOfBounds() {
		t.Run(name, func(t *testing.T) {
			client := f.client()
			frame, err := protocol.AppendFrame(nil, c.g)
			must(t, err)
			_, before := f.engine.counts()
			wantMemory(t, func() {
				client.raw(frame)
				if e := client.wantError(c.code); e.ID == nil || *e.ID != 5 || e.Hint == "" {
					t.Errorf("got %+v", e)
				}
			})
			if _, after := f.engine.counts(); after != before {
				t.Error("the engine was asked")
			}
			if got := client.ask(generate(5, "ab", 3)); got.text != "aba" {
				t.Errorf("the next request on the connection: %+v", got)
			}
		})
	}
}

func TestLongTextIsNotTokenized(t *testing.T) {
	f := ready(t, nil)
	c := f.client()
	long := strings.Repeat("a", 2*testContext+1)
	c.send(generate(1, long, 1))
	c.wantError(protocol.CodePromptTooLong)
	c.send(&protocol.Tokenize{Text: long})
	c.wantError(protocol.CodePromptTooLong)
	if n := f.tok.calls.Load(); n != 0 {
		t.Errorf("the tokenizer was called %d times", n)
	}
	c.send(generate(1, long[1:], 1)) // within the bound for text: the tokens are counted
	c.wantError(protocol.CodePromptTooLong)
	if n := f.tok.calls.Load(); n != 1 {
		t.Errorf("the tokenizer was called %d times", n)
	}
}

func TestLongestPromptIsServed(t *testing.T) {
	f := ready(t, nil)
	got := f.client().ask(generate(1, strings.Repeat("a", testContext-1), 1))
	if got.err != nil {
		t.Error(got.err)
	}
}

func TestUnexpectedMessages(t *testing.T) {
	f := ready(t, nil)
	c := f.dial()
	c.send(generate(3, "ab", 1))
	if e := c.wantError(protocol.CodeHelloRequired); e.ID == nil || *e.ID != 3 {
		t.Errorf("got %+v", e)
	}
	c.send(&protocol.Cancel{ID: 4})
	if e := c.wantError(protocol.CodeHelloRequired); e.ID == nil || *e.ID != 4 {
		t.Errorf("got %+v", e)
	}
	c.send(&protocol.Tokenize{Text: "a"})
	c.wantError(protocol.CodeHelloRequired)
	c.body([]byte("\x81\xa4type\xa5other"))
	c.wantError(protocol.CodeUnknownType)
	c.body([]byte("\x80"))
	c.wantError(protocol.CodeBadMessage)
	c.send(&protocol.StatusRequest{})
	expect[protocol.Status](c)
	c.body([]byte("\x83\xa4type\xa5hello\xa7version\x01\xa6future\x93\x01\x02\x80")) // unknown fields are ignored
	expect[protocol.Welcome](c)
	c.send(&protocol.Hello{Version: 2})
	if code := c.closedAfter(); code != protocol.CodeUnsupportedVersion {
		t.Errorf("got %q", code)
	}
	f.works()
}

func TestDuplicateID(t *testing.T) {
	f := ready(t, nil)
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "ab", 2))
	c.send(generate(1, "xy", 2))
	if e := c.wantError(protocol.CodeDuplicateID); e.ID == nil || *e.ID != 1 {
		t.Errorf("got %+v", e)
	}
	f.engine.allow(-1)
	if got, err := c.collect(1); err != nil || got[1].text != "ab" {
		t.Errorf("the first request got %+v, %v", got[1], err)
	}
}

func TestRequestsOfAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int
		refused bool
	}{"guard": {64, true}, "guard off": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, func(b *bounds) { b.requests = c.limit })
			f.engine.allow(0)
			client := f.client()
			for id := range uint64(65) {
				client.send(generate(id, "ab", 2))
			}
			if c.refused {
				if e := client.wantError(protocol.CodeTooManyRequests); *e.ID != 64 {
					t.Errorf("got %+v", e)
				}
			}
			eventually(t, "the requests are submitted", func() bool {
				live, _ := f.engine.counts()
				return live == min(c.limit, 65)
			})
			f.collect65(client, c.refused)
		})
	}
}

// collect65 lets the engine continue and checks that each of 65 requests ends, except a
// refused one.
func (f *fixture) collect65(c *testClient, refused bool) {
	f.t.Helper()
	f.engine.allow(-1)
	n := 65
	if refused {
		n = 64
	}
	got, err := c.collect(n)
	if err != nil || len(got) != n {
		f.t.Fatalf("%d of %d ended: %v", len(got), n, err)
	}
	f.works()
}

func TestConnections(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int
		refused bool
	}{"guard": {128, true}, "guard off": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			f := ready(t, func(b *bounds) { b.connections = c.limit })
			var all []*testClient
			for range 128 {
				all = append(all, f.client())
			}
			next := f.dial()
			if c.refused {
				if code := next.closedAfter(); code != protocol.CodeTooManyConnections {
					t.Errorf("got %q", code)
				}
			} else {
				next.send(&protocol.Hello{Version: 1})
				expect[protocol.Welcome](next)
			}
			must(t, all[0].conn.Close())
			must(t, next.conn.Close())
			eventually(t, "a connection is closed", func() bool { return f.Status().Connections < 128 })
			f.works()
		})
	}
}

// A connection is closed if its client sends nothing, or does not finish a frame.
func TestSilenceAndUnfinishedFrames(t *testing.T) {
	const short, second, long = 30 * time.Millisecond, time.Second, time.Hour
	half := []byte{0, 0, 0, 9, 0x81}
	for name, c := range map[string]struct {
		silence, frame time.Duration
		send           []byte
		welcome        bool
		want           string // an error's code; "": the connection stays open
	}{
		"silent":                  {short, long, nil, false, protocol.CodeHelloRequired},
		"silent, guard off":       {long, short, nil, false, ""},
		"silent once welcomed":    {second, short, nil, true, ""},
		"half a header":           {long, short, half[:2], false, protocol.CodeBadFrame},
		"half a frame":            {long, short, half, true, protocol.CodeBadFrame},
		"half a frame, guard off": {long, long, half, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, func(b *bounds) { b.helloTimeout, b.frameTimeout = c.silence, c.frame })
			client := f.dial()
			if c.welcome {
				client = f.client()
			}
			client.raw(c.send)
			if c.want == "" {
				client.wantOpen(second * 3 / 2)
			} else if code := client.closedAfter(); code != c.want {
				t.Errorf("got %q", code)
			}
		})
	}
}

// wantOpen checks that the server sends nothing for d and does not close the connection.
func (c *testClient) wantOpen(d time.Duration) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(d))
	if msg, err := c.read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("got %v, %v", msg, err)
	}
}
