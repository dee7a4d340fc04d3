package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client/gateway/internal/plays"
)

// FuzzConnection: whatever a connection carries, it is answered in HTTP or closed, soon after its last
// byte, and the gateway goes on.
func FuzzConnection(f *testing.F) {
	s := serveFake(f, plays.Script("scripted"))
	chat := func(content, more string) string {
		return `{"model": "scripted", "messages": [{"role": "user", "content": "` + content + `"}]` + more + `}`
	}
	for _, body := range []string{
		chat("calls", `, "n": 2, "tools": [{"type": "function", "function": {"name": "get_weather"}}]`),
		chat("endless 1us", `, "stream": true`), chat("break internal", `, "stream": true`),
	} {
		head := "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
		f.Add(fmt.Appendf(nil, "%s%d\r\n\r\n%s", head, len(body), body))
	}
	f.Add([]byte("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Add([]byte("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("OPTIONS * HTTP/1.0\r\nExpect: 100-continue\r\nUpgrade: h2c\r\nContent-Length: -1\r\n\r\n"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		got := exchange(t, s.Addresses()[0], sent)
		if len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.")) {
			t.Errorf("%q is no answer in HTTP", got)
		}
		health := exchange(t, s.Addresses()[0], []byte("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"))
		if !strings.HasPrefix(string(health), "HTTP/1.0 200 ") {
			t.Errorf("then /health answers %q", health)
		}
	})
}

// exchange sends bytes on a new connection, and returns what comes until the gateway closes it.
func exchange(t *testing.T, address string, sent []byte) []byte {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetLinger(0) // else thousands of ended connections keep their ports
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	// A gateway that has refused the request may close the connection before it has read the rest.
	if _, err := conn.Write(sent); err == nil {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("after %q: %v", got, err)
	}
	return got
}
