package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a connection, as the kernel recorded it when it
// connected.
type peer struct {
	uid uint32
	pid int32
}

func peerOf(conn *net.UnixConn) (peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return peer{}, err
	}
	if optErr != nil {
		return peer{}, optErr
	}
	return peer{uid: cred.Uid, pid: cred.Pid}, nil
}
