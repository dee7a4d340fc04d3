package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// fixture is a server on a socket of its own, with a fake engine.
type fixture struct {
	*Server
	t      testing.TB
	engine *fakeEngine
	tok    *byteTokenizer
	served chan error
	end    sync.Once
	log    bytes.Buffer // read it after stop only
}

const (
	testContext = 128
	testVocab   = 256
	patience    = 2 * time.Minute // for an expected event; no passing test waits this long
)

// start starts a server in the loading state. change adjusts its bounds.
func start(t testing.TB, change func(*bounds)) *fixture {
	t.Helper()
	f := newFixture(t, change)
	f.serve()
	return f
}

// newFixture returns a server that does not listen yet.
func newFixture(t testing.TB, change func(*bounds)) *fixture {
	t.Helper()
	b := defaultBounds()
	if change != nil {
		change(&b)
	}
	dir, err := os.MkdirTemp("", "reel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fixture{t: t, engine: newFakeEngine(), tok: &byteTokenizer{}, served: make(chan error, 1)}
	f.Server = newServer(Options{
		Socket: filepath.Join(dir, "g.sock"), Version: "test",
		Logger: zerolog.New(zerolog.SyncWriter(&f.log)).Level(zerolog.InfoLevel),
	}, b)
	return f
}

// serve listens and serves until the test ends.
func (f *fixture) serve() {
	f.t.Helper()
	if err := f.Listen(); err != nil {
		f.t.Fatal(err)
	}
	go func() { f.served <- f.Serve() }()
	f.t.Cleanup(f.stop)
}

// ready starts a server in the ready state.
func ready(t testing.TB, change func(*bounds)) *fixture {
	f := start(t, change)
	f.SetReady(f.model())
	return f
}

func (f *fixture) model() Model {
	return Model{
		Name: "fake", Device: "none", Engine: f.engine, Tokenizer: f.tok,
		NewDecoder: func([]int32) Decoder { return &byteDecoder{} },
		Limits:     protocol.Limits{Context: testContext, MaxBatch: 8, Vocab: testVocab},
		Shape:      protocol.Shape{Layers: 3},
		Machine:    func() protocol.Machine { return protocol.Machine{Name: "none", MemoryUsed: 5} },
	}
}

// stop closes the server and waits for its goroutines.
func (f *fixture) stop() {
	f.end.Do(func() {
		f.engine.stop(engine.ErrShutdown)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.Close(ctx); err != nil {
			f.t.Errorf("close: %v", err)
		}
		if err := <-f.served; err != nil {
			f.t.Errorf("serve: %v", err)
		}
	})
}

// testClient is a client that can send good and bad frames.
type testClient struct {
	t      testing.TB
	conn   *net.UnixConn
	frames protocol.FrameReader
}

func (f *fixture) dial() *testClient {
	f.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: f.opts.Socket, Net: "unix"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &testClient{t: f.t, conn: conn, frames: protocol.FrameReader{R: bufio.NewReader(conn)}}
}

// client dials, says hello and awaits welcome.
func (f *fixture) client() *testClient {
	f.t.Helper()
	c := f.dial()
	c.send(&protocol.Hello{Version: protocol.Version})
	expect[protocol.Welcome](c)
	return c
}

func (c *testClient) send(msg any) {
	c.t.Helper()
	frame, err := protocol.AppendFrame(nil, msg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.raw(frame)
}

func (c *testClient) raw(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// body sends a frame with the body b.
func (c *testClient) body(b []byte) {
	c.t.Helper()
	c.raw(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
}

func (c *testClient) read() (any, error) {
	body, err := c.frames.Next()
	if err != nil {
		return nil, err
	}
	return protocol.DecodeReply(body)
}

// expect reads one message of type M.
func expect[M any](c *testClient) *M {
	c.t.Helper()
	msg, err := c.read()
	if err != nil {
		c.t.Fatalf("want %T: %v", new(M), err)
	}
	m, ok := msg.(*M)
	if !ok {
		c.t.Fatalf("want %T, got %#v", new(M), msg)
	}
	return m
}

// expectInOrder reads n tokens, each with the next index, and the end.
func (c *testClient) expectInOrder(n int) {
	c.t.Helper()
	for i := range n {
		if m := expect[protocol.Token](c); m.Index != i {
			c.t.Fatalf("got token %d, want %d", m.Index, i)
		}
	}
	expect[protocol.Done](c)
}

func (c *testClient) wantError(code string) *protocol.Error {
	c.t.Helper()
	e := expect[protocol.Error](c)
	if e.Code != code {
		c.t.Fatalf("got %s (%v), want %s", e.Code, e, code)
	}
	return e
}

// wantClosed reads until the server closes the connection.
func (c *testClient) wantClosed() {
	c.t.Helper()
	for {
		if _, err := c.read(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.t.Fatal("the connection is still open")
			}
			return
		}
	}
}

// closedAfter reads until the server closes the connection, and returns the code of the
// last error that it sent.
func (c *testClient) closedAfter() (code string) {
	c.t.Helper()
	for {
		msg, err := c.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatal("the connection is still open")
		}
		if err != nil {
			return code
		}
		if e, ok := msg.(*protocol.Error); ok {
			code = e.Code
		}
	}
}

// completion holds the messages of one request.
type completion struct {
	text   string
	tokens []*protocol.Token
	done   *protocol.Done
	err    *protocol.Error
}

// collect reads until n requests have ended. It returns them by id.
func (c *testClient) collect(n int) (map[uint64]*completion, error) {
	got := map[uint64]*completion{}
	of := func(id uint64) *completion {
		if got[id] == nil {
			got[id] = &completion{}
		}
		return got[id]
	}
	for n > 0 {
		msg, err := c.read()
		if err != nil {
			return got, err
		}
		switch m := msg.(type) {
		case *protocol.Token:
			of(m.ID).tokens = append(of(m.ID).tokens, m)
			of(m.ID).text += m.Text
		case *protocol.Done:
			of(m.ID).done = m
			n--
		case *protocol.Error:
			if m.ID == nil {
				return got, m
			}
			of(*m.ID).err = m
			n--
		}
	}
	return got, nil
}

// ask sends one request and waits for its end.
func (c *testClient) ask(g *protocol.Generate) *completion {
	c.t.Helper()
	c.send(g)
	got, err := c.collect(1)
	if err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
	if got[g.ID] == nil {
		c.t.Fatalf("nothing came for request %d: %v", g.ID, err)
	}
	return got[g.ID]
}

// generate asks for n tokens after prompt.
func generate(id uint64, prompt string, n int) *protocol.Generate {
	return &protocol.Generate{ID: id, Prompt: &prompt, MaxTokens: &n}
}

// works checks that a new client is served.
func (f *fixture) works() {
	f.t.Helper()
	c := f.client()
	defer c.conn.Close()
	if got := c.ask(generate(7, "ab", 3)); got.text != "aba" || got.done == nil {
		f.t.Errorf("the next request is not served: %+v", got)
	}
}

// awaitLive waits until the engine runs n requests.
func (f *fixture) awaitLive(n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d requests run", n), func() bool {
		live, _ := f.engine.counts()
		return live == n
	})
}

// eventually polls until ok. It is for states that no message announces.
func eventually(t testing.TB, state string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not reached after %v: %s", patience, state)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
