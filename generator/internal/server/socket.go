package server

import (
	"context"
	"time"

	"reel.internal/reel/generator/internal/unixsocket"
)

// lockTimeout bounds the wait for another server that owns the path but does not listen
// on it.
const lockTimeout = 5 * time.Second

// open returns the socket that the server accepts connections on.
func (s *Server) open() (*unixsocket.Listener, error) {
	switch {
	case s.opts.Inherited != nil:
		return unixsocket.Inherit(s.opts.Inherited), nil
	case s.opts.Lock != nil:
		return s.opts.Lock.Listen()
	}
	ctx, stop := context.WithTimeout(context.Background(), lockTimeout)
	defer stop()
	return unixsocket.Listen(ctx, s.opts.Socket)
}
