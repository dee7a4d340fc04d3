package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

var noContext = context.Background()

// connection is an accepted connection with what the kernel says of its peer.
type connection struct {
	net.Conn
	peer  peer
	close func() // gives the connection's share back, once
}

// Close closes the connection.
func (c *connection) Close() error {
	defer c.close()
	return c.Conn.Close()
}

// countedListener accepts connections within the bounds of users.
type countedListener struct {
	net.Listener
	g    *Gateway
	open bool // it serves everybody
}

// counted returns l with bounds, and with TLS unless secure is nil.
func (g *Gateway) counted(l net.Listener, secure *tls.Config) net.Listener {
	l = countedListener{Listener: l, g: g}
	if secure != nil && l.Addr().Network() != "unix" {
		return tls.NewListener(l, secure)
	}
	return l
}

// Accept returns the next connection. One that finds no room is closed.
func (l countedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := peerOf(c)
		p.open = l.open
		user := l.g.shareOf(p)
		if !l.g.connections.take(user, 1) {
			l.g.log.Debug().Str("user", user).Msg("too many connections")
			_ = c.Close()
			continue
		}
		return &connection{c, p, sync.OnceFunc(func() { l.g.connections.give(user, 1) })}, nil
	}
}

// shareOf names the share of connections that a peer takes from. All those who may not ask anyway
// have one.
func (g *Gateway) shareOf(p peer) string {
	if g.foreign(p) {
		return "foreign"
	}
	return p.String()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// withConn puts the connection into the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// peerOfRequest returns the peer of a request's connection.
func peerOfRequest(r *http.Request) peer {
	if c, ok := r.Context().Value(connKey{}).(*connection); ok {
		return c.peer
	}
	return peer{uid: unknownUID}
}

// writeDeadline bounds the time in which the client reads what is written next.
func writeDeadline(c *http.ResponseController, wait time.Duration) {
	_ = c.SetWriteDeadline(time.Now().Add(wait)) // after an error writing fails too
}
