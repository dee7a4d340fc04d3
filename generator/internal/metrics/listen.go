package metrics

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrAddress refuses an address that others than this machine could reach, or that
// is none.
var ErrAddress = errors.New("metrics: give a port of 127.0.0.1 or [::1], as in 127.0.0.1:9464, or unix: and an absolute path")

// CheckAddress returns ErrAddress where Listen would refuse the address.
func CheckAddress(address string) error {
	_, _, err := split(address)
	return err
}

// split is the network and the address that package net takes. A name is refused,
// localhost too: what it means is another's to say.
func split(address string) (network, at string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return "", "", ErrAddress
		}
		return "unix", path, nil
	}
	port, err := netip.ParseAddrPort(address)
	if err != nil || !port.Addr().IsLoopback() {
		return "", "", ErrAddress
	}
	return "tcp", address, nil
}

// Listen listens on a loopback address, HOST:PORT, or on a Unix socket, unix:PATH,
// that who may write to it can read. A socket that nobody listens on is replaced.
// Errors: ErrAddress or the system's.
func Listen(address string) (net.Listener, error) {
	network, at, err := split(address)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeStale(at); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen(network, at)
	if err == nil && network == "unix" {
		err = os.Chmod(at, 0o660)
	}
	return l, err
}

// removeStale removes a socket that nobody listens on, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is there and is no socket", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("another program listens on %s", path)
	}
	return os.Remove(path)
}

// Serve answers GET /metrics on l until l is closed, and nothing else.
func (m *Metrics) Serve(l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, Timeout: 10 * time.Second}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10}
	err := s.Serve(l)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
