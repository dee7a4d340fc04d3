package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unknownUID is the uid of a peer whom the kernel does not name, as one on another machine.
const unknownUID = -1

// peer is who made a connection.
type peer struct {
	uid  int    // as the kernel reports it, or unknownUID
	unix bool   // over a Unix socket
	open bool   // to an address that serves everybody
	host string // its address otherwise, of IPv6 the first 64 bits
}

// String names the peer, as in "uid 1000".
func (p peer) String() string {
	if p.uid == unknownUID {
		return "host " + p.host
	}
	return fmt.Sprintf("uid %d", p.uid)
}

// foreign reports whether p may not ask: without keys, a loopback connection of a user who is
// neither the gateway's own nor root.
func (g *Gateway) foreign(p peer) bool {
	if p.unix || p.open || g.o.Keys != nil || g.o.OpenLoopback {
		return false
	}
	return p.uid != os.Geteuid() && p.uid != 0
}

// peerOf asks the kernel who made a connection.
func peerOf(c net.Conn) peer {
	if raw, ok := c.(*net.UnixConn); ok {
		return peer{uid: unixPeer(raw), unix: true}
	}
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return peer{uid: unknownUID}
	}
	p := peer{uid: unknownUID, host: hostOf(remote.AddrPort().Addr())}
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok && remote.IP.IsLoopback() {
		if uid, err := ownerOf(remote.AddrPort(), local.AddrPort()); err == nil {
			p.uid = uid
		}
	}
	return p
}

// hostOf names the host with an address. A host of IPv6 has all addresses of a network of 64 bits, so
// they count as one user.
func hostOf(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return a.String()
	}
	network, _ := a.Prefix(64) // such an address has as many
	return network.String()
}

// unixPeer returns the uid of a Unix connection's peer.
func unixPeer(c *net.UnixConn) int {
	uid := unknownUID
	raw, err := c.SyscallConn()
	if err != nil {
		return uid
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}

// Sizes and numbers of linux/inet_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	diagRequestBytes = 56 // struct inet_diag_req_v2
	diagReplyBytes   = 72 // struct inet_diag_msg
	diagUID          = 64 // offset of idiag_uid in it, followed by idiag_inode
	diagTime         = time.Second
)

// errNoOwner means that no process has the socket open. The kernel then gives its uid as 0, which
// would be root's.
var errNoOwner = errors.New("no process holds the socket")

// ownerOf returns the uid that made the TCP socket on this machine with the given two addresses, its
// own first. It asks the kernel over netlink, as ss does (sock_diag(7)).
func ownerOf(own, other netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	timeout := unix.NsecToTimeval(int64(diagTime))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, diagRequest(own, other), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return 0, err
	}
	return ownerIn(reply[:n])
}

// diagRequest returns the netlink message that asks for one socket.
func diagRequest(own, other netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if own.Addr().Unmap().Is6() {
		family = unix.AF_INET6
	}
	b := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN+diagRequestBytes)
	b = binary.NativeEndian.AppendUint16(b, sockDiagByFamily)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...)                      // sequence, port
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)          // no extensions
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0))    // sockets in any state
	b = binary.BigEndian.AppendUint16(b, own.Port())       // idiag_sport
	b = binary.BigEndian.AppendUint16(b, other.Port())     // idiag_dport
	b = append(b, address(own.Addr())...)                  // idiag_src
	b = append(b, address(other.Addr())...)                // idiag_dst
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // INET_DIAG_NOCOOKIE, twice
}

// address returns an address in 16 bytes, as the kernel reads it.
func address(a netip.Addr) []byte {
	b := make([]byte, 16)
	copy(b, a.Unmap().AsSlice())
	return b
}

// ownerIn returns the uid in the kernel's answer.
func ownerIn(reply []byte) (int, error) {
	messages, err := syscall.ParseNetlinkMessage(reply)
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 || messages[0].Header.Type != sockDiagByFamily || len(messages[0].Data) < diagReplyBytes {
		return 0, errNoOwner // an error of the kernel: no such socket
	}
	data := messages[0].Data[diagUID:]
	if inode := binary.NativeEndian.Uint32(data[4:]); inode == 0 {
		return 0, errNoOwner
	}
	return int(binary.NativeEndian.Uint32(data)), nil
}
