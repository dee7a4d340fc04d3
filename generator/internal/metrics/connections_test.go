package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

const patience = 20 * time.Second // for an expected event; no passing test waits this long

// listening serves on an address until the test ends.
func listening(t *testing.T, address string) net.Addr {
	t.Helper()
	l, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- full().Serve(l, zerolog.Nop()) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr()
}

// dial opens n connections and sends text on each. They stay open until the test ends.
func dial(t *testing.T, at net.Addr, n int, text string) {
	t.Helper()
	for range n {
		c, err := net.Dial(at.Network(), at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = fmt.Fprint(c, text) // the server may have closed it
	}
}

// descriptors returns the number of this process's open descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Clients that send nothing, half a request, or requests without reading the answers take few
// descriptors, and another client is still served.
func TestIdleConnections(t *testing.T) {
	const others = 300
	request := "GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n"
	texts := map[string]string{"silent": "", "half a header": request[:20], "unread": strings.Repeat(request, 200)}
	for name, text := range texts {
		for _, address := range []string{"127.0.0.1:0", "unix:" + t.TempDir() + "/m.sock"} {
			t.Run(name+" on "+address[:4], func(t *testing.T) {
				at, before := listening(t, address), descriptors(t)
				dial(t, at, others, text)
				start := time.Now()
				code, body := get(t, at.Network(), at.String(), "/metrics")
				if code != 200 || !strings.Contains(body, "reel_requests_running 2\n") {
					t.Errorf("%d\n%s", code, body)
				}
				t.Logf("answered in %v", time.Since(start))
				most := before + others + 2*maxConnections // our ends; the server's, and those that it is closing
				for end := time.Now().Add(patience); descriptors(t) > most; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%d descriptors are open, want at most %d", descriptors(t), most)
					}
				}
			})
		}
	}
}

// A new connection replaces the one that has been idle longest. A busy connection stays open;
// if all are busy, the new one is closed.
func TestLongestIdleIsClosed(t *testing.T) {
	c := newConnections()
	open := func() (ours, theirs net.Conn) {
		ours, theirs = net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		c.changed(theirs, http.StateNew)
		return ours, theirs
	}
	var ours, theirs [maxConnections]net.Conn
	for i := range ours {
		ours[i], theirs[i] = open()
	}
	c.setBusy(theirs[0], true)
	c.changed(theirs[1], http.StateIdle) // idle for less time than the third
	newest, other := open()
	if !closed(ours[2]) || closed(ours[0]) || closed(ours[1]) || closed(newest) {
		t.Error("another connection than the third was closed")
	}
	for _, conn := range append(theirs[:], other) {
		c.setBusy(conn, true)
	}
	if refused, _ := open(); !closed(refused) || closed(newest) || len(c.open) != maxConnections {
		t.Error("a connection replaced a busy one")
	}
	c.changed(other, http.StateClosed)
	if last, _ := open(); closed(last) || len(c.open) != maxConnections {
		t.Error("a connection below the bound was closed")
	}
}

// closed reports whether the other end of a pipe is closed.
func closed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// A connection is closed if its client sends no request, half of one, or no further one. The
// times are 1/50 of the real ones.
func TestTimesOfAConnection(t *testing.T) {
	request := "GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n"
	for name, text := range map[string]string{"silent": "", "half a header": request[:20], "idle": request} {
		l, err := Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := full().server(zerolog.Nop())
		s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = s.ReadHeaderTimeout/50, s.ReadTimeout/50, s.IdleTimeout/50
		go s.Serve(l)
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, text)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays open", name)
		}
		conn.Close()
		s.Close()
	}
}

// Two answers are computed at once. A further request waits until its client gives up.
func TestScrapesAreLimited(t *testing.T) {
	started, finish := make(chan struct{}, 8), make(chan struct{})
	h := newConnections().limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-finish
	}))
	ask := func(ctx context.Context) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
	}
	var all sync.WaitGroup
	for range cap(started) {
		all.Go(func() { ask(t.Context()) })
	}
	<-started
	<-started
	givenUp, cancel := context.WithCancel(t.Context())
	cancel()
	ask(givenUp) // returns
	if len(started) > 0 {
		t.Error("more than two are computed at once")
	}
	close(finish)
	all.Wait()
}
