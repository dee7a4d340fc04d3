package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// socketMode is the mode of a Unix listener's file: its owner and group may connect.
const socketMode = 0o660

// listen opens all listeners.
func (g *Gateway) listen() error {
	var secure *tls.Config
	if (g.o.TLSCert == "") != (g.o.TLSKey == "") {
		return fmt.Errorf("%w: --tls-cert and --tls-key belong together: give both", ErrConfig)
	}
	if g.o.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(g.o.TLSCert, g.o.TLSKey)
		if err != nil {
			return fmt.Errorf("%w: --tls-cert and --tls-key: %w", ErrConfig, err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}
	for _, address := range g.o.Listen {
		l, err := listenAt(address)
		if err != nil {
			return fmt.Errorf("--listen %s: %w", address, err)
		}
		g.listeners = append(g.listeners, g.counted(l, secure))
		if g.o.Keys == nil && !onThisMachine(l.Addr()) {
			return fmt.Errorf("%w: --listen %s: other machines reach it: give --api-key-file, or listen on 127.0.0.1",
				ErrConfig, address)
		}
	}
	for _, address := range g.o.HealthListen {
		l, err := listenAt(address)
		if err != nil {
			return fmt.Errorf("--health-listen %s: %w", address, err)
		}
		g.health = append(g.health, countedListener{l, g, true})
	}
	return nil
}

// closeListeners closes what listen has opened.
func (g *Gateway) closeListeners() {
	for _, l := range append(g.listeners, g.health...) {
		_ = l.Close()
	}
}

// onThisMachine reports whether only this machine reaches an address.
func onThisMachine(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// addressOf returns the address of a listener in the form of --listen.
func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// listenAt listens on HOST:PORT or unix:PATH.
func listenAt(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if isUnix {
		return listenUnix(path)
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: want HOST:PORT or unix:PATH: %w", ErrConfig, err)
	}
	return net.Listen("tcp", address)
}

// listenUnix listens at path. It replaces a socket on which nobody listens.
func listenUnix(path string) (net.Listener, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("%w: the path of a socket begins with /", ErrConfig)
	}
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// Before bind this is the mode of the file to come; the umask only narrows it.
		return raw.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), socketMode) })
	}}
	l, err := c.Listen(noContext, "unix", path)
	if errors.Is(err, unix.EADDRINUSE) && stale(path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = c.Listen(noContext, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// stale reports whether path is a socket on which nobody listens.
func stale(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// newErrorLog returns the log of package http's own lines. Most tell of connections that clients broke.
func newErrorLog(log zerolog.Logger) *stdlog.Logger { return stdlog.New(errorLog{log}, "", 0) }

type errorLog struct{ log zerolog.Logger }

// Write logs a line.
func (e errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "http: panic serving") || strings.HasPrefix(text, "http: Accept error") {
		e.log.Error().Str("error", text).Msg("the gateway failed")
	} else {
		e.log.Debug().Str("error", text).Msg("a connection failed")
	}
	return len(line), nil
}
