package metrics

import (
	"context"
	"errors"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/unixsocket"
)

// lockTimeout bounds Listen's wait for the former owner of a Unix socket to end.
const lockTimeout = 5 * time.Second

// Listen listens on a loopback address, HOST:PORT, or on a Unix socket, unix:PATH, for the
// socket's owner and group. It replaces a stale socket; closing the listener removes the
// socket. Errors: [config.ErrMetricsAddress], those of [unixsocket.Listen] or the system's.
func Listen(address string) (net.Listener, error) {
	network, at, err := config.MetricsAddress(address)
	if err != nil {
		return nil, err
	}
	if network != "unix" {
		return net.Listen(network, at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	l, err := unixsocket.Listen(ctx, at)
	if err != nil {
		return nil, err // not l: an interface with a nil pointer is not nil
	}
	return l, nil
}

// Bounds of a connection, in addition to those of [connections].
const (
	readTime   = 5 * time.Second  // to read a request
	scrapeTime = 10 * time.Second // to compute an answer
	writeTime  = 15 * time.Second // from a request's end to its answer's end
	idleTime   = 10 * time.Second // between two requests
	maxHeader  = 8 << 10          // bytes
)

// Serve answers GET /metrics on l until l is closed. It logs failed connections.
func (m *Metrics) Serve(l net.Listener, log zerolog.Logger) error {
	err := m.server(log).Serve(l)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// server returns the HTTP server with all its bounds.
func (m *Metrics) server(log zerolog.Logger) *http.Server {
	c := newConnections()
	scrape := c.limit(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", http.TimeoutHandler(scrape, scrapeTime, "the metrics took too long"))
	return &http.Server{
		Handler: mux, ConnState: c.changed, ConnContext: c.withConn,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: stdlog.New(errorLog{log}, "", 0),
	}
}

// errorLog logs the lines of package http. Otherwise they would go to stderr, which may
// block.
type errorLog struct{ log zerolog.Logger }

// Write logs a line.
func (e errorLog) Write(line []byte) (int, error) {
	e.log.Warn().Str("error", strings.TrimSpace(string(line))).Msg("a metrics connection failed")
	return len(line), nil
}
