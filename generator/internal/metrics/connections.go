package metrics

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	maxConnections = 16 // open at once
	maxScrapes     = 2  // answers computed at once
)

// connections bounds the open connections: any user of this machine can connect to a
// loopback address, and each connection takes a descriptor of the process. A new connection
// beyond the bound replaces the one that has been idle longest. A connection is idle unless
// its answer is being computed, so an unfinished request or an unread answer does not keep
// it open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is the state of an open connection.
type connection struct {
	since time.Time // of the last change of state
	busy  bool      // its answer is being computed
}

func newConnections() *connections { return &connections{open: map[net.Conn]*connection{}} }

// changed is the [http.Server]'s ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.admit(conn)
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	default:
		if known := c.open[conn]; known != nil {
			known.since = time.Now()
		}
	}
}

// admit adds a connection. At the bound it closes the longest idle one first, or, if all are
// busy, the new one.
func (c *connections) admit(conn net.Conn) {
	if len(c.open) >= maxConnections {
		idle := c.longestIdle()
		if idle == nil {
			_ = conn.Close()
			return
		}
		delete(c.open, idle)
		_ = idle.Close()
	}
	c.open[conn] = &connection{since: time.Now()}
}

// longestIdle returns the connection that has been idle longest; nil if all are busy.
func (c *connections) longestIdle() (idle net.Conn) {
	for conn, s := range c.open {
		if !s.busy && (idle == nil || s.since.Before(c.open[idle].since)) {
			idle = conn
		}
	}
	return idle
}

// connKey is the key of a request's net.Conn in its context.
type connKey struct{}

// withConn is the [http.Server]'s ConnContext: it puts the connection into the context.
func (c *connections) withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// limit runs h for maxScrapes requests at once; further requests wait.
func (c *connections) limit(h http.Handler) http.Handler {
	permits := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case permits <- struct{}{}:
			defer func() { <-permits }()
		case <-r.Context().Done():
			return
		}
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		c.setBusy(conn, true)
		defer c.setBusy(conn, false)
		h.ServeHTTP(w, r)
	})
}

// setBusy marks a connection as busy or idle, unless it is closed.
func (c *connections) setBusy(conn net.Conn, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil {
		known.busy, known.since = busy, time.Now()
	}
}
