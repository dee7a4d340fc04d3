//go:build linux

package e2e

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// peer is a client that sends single frames, good and bad ones.
type peer struct {
	t      *testing.T
	conn   *net.UnixConn
	frames protocol.FrameReader
}

// dial connects without a hello.
func (g *generator) dial() *peer {
	g.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: g.socket, Net: "unix"})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &peer{g.t, conn, protocol.FrameReader{R: bufio.NewReader(conn)}}
}

// peer connects, sends hello, and waits for welcome. It tries again while the generator still counts connections that
// the test has closed.
func (g *generator) peer() *peer {
	g.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		p := g.dial()
		p.send(&protocol.Hello{Version: protocol.Version})
		msg, err := p.read()
		if _, ok := msg.(*protocol.Welcome); ok {
			return p
		}
		e, ok := msg.(*protocol.Error)
		if !ok || e.Code != protocol.CodeTooManyConnections || time.Now().After(end) {
			g.t.Fatalf("want welcome, got %+v, %v", msg, err)
		}
	}
}

// framed prefixes a body with its length.
func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func (p *peer) send(msg any) {
	p.t.Helper()
	frame, err := protocol.AppendFrame(nil, msg)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(frame); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) read() (any, error) {
	body, err := p.frames.Next()
	if err != nil {
		return nil, err
	}
	return protocol.DecodeReply(body)
}

// expect reads one message, which must be an M.
func expect[M any](p *peer) M {
	p.t.Helper()
	msg, err := p.read()
	m, ok := msg.(M)
	if err != nil || !ok {
		p.t.Fatalf("want %T, got %+v, %v", m, msg, err)
	}
	return m
}

// until reads messages up to an M for which ok returns true.
func until[M any](p *peer, ok func(M) bool) M {
	p.t.Helper()
	for {
		msg, err := p.read()
		if err != nil {
			p.t.Fatalf("waiting for %T: %v", *new(M), err)
		}
		if m, is := msg.(M); is && ok(m) {
			return m
		}
	}
}

// wantClosed reads until the generator closes the connection, and checks the code of the last error that it sent.
func (p *peer) wantClosed(code string) {
	p.t.Helper()
	var last string
	for {
		msg, err := p.read()
		if e, ok := msg.(*protocol.Error); ok {
			last = e.Code
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.t.Fatal("the connection is still open")
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET):
			p.t.Fatal(err)
		case last != code:
			p.t.Fatalf("the connection ended with %q (%v), want %q", last, err, code)
		default:
			return
		}
	}
}

// endless returns a request that fills the context.
func (g *generator) endless(id uint64) *protocol.Generate {
	return &protocol.Generate{ID: id, Tokens: []int32{0}, MaxTokens: new(g.limits.Context - 1),
		Temperature: new(0.0), IgnoreEOS: true}
}
