package client

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// serviceSocket is the socket of a generator that runs as a service. Only root can
// create its directory.
const serviceSocket = "/run/reel/generator.sock"

// Peer is the process that listens on a socket. With socket activation it is the
// service manager.
type Peer struct {
	Socket string // the socket's path
	UID    int    // when the process began to listen
	PID    int
}

// peerOf asks the kernel for the process at the other end of conn.
func peerOf(conn net.Conn, socket string) (p Peer, known bool) {
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		return p, false
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return p, false
	}
	var credentials *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if failed != nil || err != nil {
		return p, false
	}
	return Peer{Socket: socket, UID: int(credentials.Uid), PID: int(credentials.Pid)}, true
}

// Foreign reports whether p belongs to neither this user nor root. Its owner reads the
// prompts and writes the answers.
func (p Peer) Foreign() bool { return p.UID != os.Getuid() && p.UID != 0 }

// Service reports whether p runs as the service's user: p.Socket is the service's
// socket, and p.UID owns the directory /run/reel.
func (p Peer) Service() bool {
	return p.Socket == serviceSocket && owner(filepath.Dir(p.Socket)) == p.UID
}

// owner returns the uid of a path's owner, or -1 if it is unknown.
func owner(path string) int {
	info, err := os.Lstat(path)
	if err != nil {
		return -1
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// String describes p's user, as in "uid 997 (reel)".
func (p Peer) String() string {
	text := fmt.Sprintf("uid %d", p.UID)
	if u, err := user.LookupId(strconv.Itoa(p.UID)); err == nil {
		text += " (" + u.Username + ")"
	}
	return text
}
