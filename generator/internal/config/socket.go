package config

import (
	"os"
	"path/filepath"

	"reel.internal/reel/generator/internal/unixsocket"
)

// DefaultSocket returns the path that a generator listens on by default: generator.sock in
// /run/reel for root, else in $XDG_RUNTIME_DIR/reel, else in /tmp/reel-UID.
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
