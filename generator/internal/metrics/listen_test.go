package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Addresses that other machines can reach are refused.
func TestOnlyLocalAddresses(t *testing.T) {
	for _, bad := range []string{
		"0.0.0.0:9464", ":9464", "[::]:9464", "192.168.1.2:9464", "10.0.0.1:0", "localhost:9464", "example.org:80",
		"127.0.0.1", "9464", "unix:", "unix:metrics.sock", "/run/metrics.sock", "[::ffff:10.0.0.1]:80",
		"unix:@abstract",
	} {
		if _, _, err := config.MetricsAddress(bad); !errors.Is(err, config.ErrMetricsAddress) {
			t.Errorf("%q: %v", bad, err)
		}
		if l, err := Listen(bad); err == nil {
			l.Close()
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, good := range []string{"127.0.0.1:9464", "127.8.7.6:0", "[::1]:9464", "unix:/run/reel/metrics.sock"} {
		if _, _, err := config.MetricsAddress(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func get(t *testing.T, network, address, path string) (int, string) {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	r, err := c.Get("http://metrics" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	for _, address := range []string{"127.0.0.1:0", "unix:" + path} {
		l, err := Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- full().Serve(l, zerolog.Nop()) }()
		network, at := l.Addr().Network(), l.Addr().String()
		code, body := get(t, network, at, "/metrics")
		if code != 200 || !strings.Contains(body, "reel_requests_running 2\n") ||
			!strings.Contains(body, `reel_time_to_first_token_seconds_bucket{le="0.02"} 1`) {
			t.Errorf("%s: %d\n%s", address, code, body)
		}
		if code, _ := get(t, network, at, "/debug/pprof/"); code != 404 {
			t.Errorf("another path: %d", code)
		}
		l.Close()
		if err := <-served; err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A stale socket is replaced; a socket in use, or another file, is not.
func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a socket in use was taken")
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := Listen("unix:" + path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a file was replaced")
	}
}

// A socket in use is kept even if its queue of connections is full.
func TestFullSocketIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for { // until the queue is full
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			break
		}
		defer c.Close()
	}
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := Listen("unix:" + path); err == nil {
		l.Close()
		t.Error("a socket in use was taken")
	}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, before) {
		t.Errorf("the socket was removed: %v", err)
	}
}

// Closing removes the socket that Listen made, and no later one at its path.
func TestCloseKeepsASuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	successor, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	}
}
