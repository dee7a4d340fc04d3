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

// serviceSocket is where a generator listens that runs as a service. Root alone
// can make its directory.
const serviceSocket = "/run/reel/generator.sock"

// Peer is the process that listens on a socket. Where a service manager listens
// for the generator it is the manager.
type Peer struct {
	Socket string // the socket's path
	UID    int    // of the process when it began to listen
	PID    int
}

// peerOf asks the kernel who listens at the other end of conn.
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

// Foreign reports whether p belongs to neither this user nor root. Whoever it is
// reads the prompts and writes the answers.
func (p Peer) Foreign() bool { return p.UID != os.Getuid() && p.UID != 0 }

// Service reports whether p is the user for whom root set up the service: it owns
// the directory /run/reel, and the socket lies there.
func (p Peer) Service() bool {
	return p.Socket == serviceSocket && owner(filepath.Dir(p.Socket)) == p.UID
}

// owner is the uid of a path's owner, -1 where that is not known.
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

// String names p's user, as in "uid 997 (reel)".
func (p Peer) String() string {
	text := fmt.Sprintf("uid %d", p.UID)
	if u, err := user.LookupId(strconv.Itoa(p.UID)); err == nil {
		text += " (" + u.Username + ")"
	}
	return text
}
