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
	maxAnswers     = 2  // gathered at once
)

// connections bounds the open connections: any user of this machine can connect to
// a loopback address, and each connection takes a descriptor of the process. A new
// one past the bound takes the place of the one that has been idle longest. A
// connection counts as idle unless its answer is being gathered, so neither half
// a request nor an unread answer keeps a place.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is the state of an open connection.
type connection struct {
	since time.Time // its last change of state
	busy  bool      // its answer is being gathered
}

func newConnections() *connections { return &connections{open: map[net.Conn]*connection{}} }

// changed is an http.Server's ConnState.
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

// admit makes room for a connection, or closes it if all others are busy.
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

// longestIdle returns nil if all connections are busy.
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

// remember is an http.Server's ConnContext.
func (c *connections) remember(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// limit runs h for maxAnswers requests at once; the others take turns.
func (c *connections) limit(h http.Handler) http.Handler {
	places := make(chan struct{}, maxAnswers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		case <-r.Context().Done():
			return
		}
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		c.setBusy(conn, true)
		defer c.setBusy(conn, false)
		h.ServeHTTP(w, r)
	})
}

// setBusy marks a connection, unless it has been closed.
func (c *connections) setBusy(conn net.Conn, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil {
		known.busy, known.since = busy, time.Now()
	}
}
