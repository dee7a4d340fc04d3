//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/daemon"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

const patience = 20 * time.Second // bounds the wait for an expected event; no test waits it out

// fixture is a program that runs in the test's process.
type fixture struct {
	t       *testing.T
	program program
	signals chan os.Signal
	engine  *fakeEngine
	manager daemon.Manager
	options chan config.Options // arguments of load
	stderr  bytes.Buffer
	socket  string
	memory  []protocol.MemoryUse // planned
	code    chan int
}

func newFixture(t *testing.T) *fixture {
	dir, err := os.MkdirTemp("", "reel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fixture{t: t, signals: make(chan os.Signal, 2), engine: newFake(), options: make(chan config.Options, 1),
		socket: filepath.Join(dir, "g.sock"), code: make(chan int, 1)}
	f.program = program{env: func(string) string { return "" }, stdout: io.Discard,
		stderr: logging.NewQueue(&f.stderr), signals: f.signals, load: f.load,
		manager: func(zerolog.Logger) (daemon.Manager, error) { return f.manager, nil }, patience: drainTime}
	return f
}

func (f *fixture) load(_ context.Context, o config.Options, progress func(float64, string)) (*assembly.Loaded, error) {
	progress(1, "weights")
	f.options <- o
	return &assembly.Loaded{Engine: f.engine, Model: server.Model{Name: "fake", Device: "host", Engine: f.engine,
		Tokenizer:  fakeTokenizer{},
		NewDecoder: func([]int32) server.Decoder { return fakeTokenizer{} }, Memory: f.memory,
		Limits: protocol.Limits{Context: 8, MaxBatch: 1, Vocab: 256}}}, nil
}

// start runs the program with these arguments on the fixture's socket.
func (f *fixture) start(args ...string) {
	go func() { f.code <- f.program.run(append([]string{"--socket", f.socket}, args...)) }()
}

// wait returns the exit code.
func (f *fixture) wait() int {
	f.t.Helper()
	select {
	case code := <-f.code:
		return code
	case <-time.After(patience):
		f.t.Fatal("the program goes on")
		return 0
	}
}

// connect connects as soon as the program listens, and says hello until it is welcomed.
func (f *fixture) connect() (net.Conn, *protocol.FrameReader) {
	f.t.Helper()
	var conn net.Conn
	for end := time.Now().Add(patience); conn == nil; time.Sleep(time.Millisecond) {
		conn, _ = net.Dial("unix", f.socket)
		if time.Now().After(end) {
			f.t.Fatal("nobody listens")
		}
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	frames := &protocol.FrameReader{R: conn}
	for {
		f.send(conn, &protocol.Hello{Version: protocol.Version})
		if _, ok := f.read(frames).(*protocol.Welcome); ok {
			return conn, frames
		}
	}
}

func (f *fixture) send(conn net.Conn, msg any) {
	f.t.Helper()
	frame, err := protocol.AppendFrame(nil, msg)
	if err == nil {
		_, err = conn.Write(frame)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(frames *protocol.FrameReader) any {
	f.t.Helper()
	body, err := frames.Next()
	if err != nil {
		f.t.Fatal(err)
	}
	msg, err := protocol.DecodeReply(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return msg
}

// hangs starts a program with a request that does not end by itself.
func (f *fixture) hangs() *protocol.FrameReader {
	f.t.Helper()
	f.engine.hold = true
	f.start()
	conn, frames := f.connect()
	prompt := "ab"
	f.send(conn, &protocol.Generate{ID: 1, Prompt: &prompt})
	if _, ok := f.read(frames).(*protocol.Token); !ok {
		f.t.Fatal("no token came")
	}
	return frames
}
