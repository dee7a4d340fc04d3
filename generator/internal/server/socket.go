package server

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"reel/generator/internal/unixsocket"
)

// lockTimeout bounds the wait for another server that owns the path without
// listening on it.
const lockTimeout = 5 * time.Second

// DefaultSocket is the path that a generator listens on where none is given:
// /run/reel for root, else $XDG_RUNTIME_DIR/reel, else /tmp/reel-UID.
func DefaultSocket() string {
	return defaultSocket(os.Getuid(), os.Getenv("XDG_RUNTIME_DIR"))
}

func defaultSocket(uid int, runtimeDir string) string {
	const name = "generator.sock"
	switch {
	case uid == 0:
		return filepath.Join("/run/reel", name)
	case runtimeDir != "":
		return filepath.Join(runtimeDir, "reel", name)
	}
	return filepath.Join(unixsocket.PrivateDir("/tmp", uid), name)
}

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
