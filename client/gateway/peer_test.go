package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"reel.internal/reel/client/internal/fakegen"
)

// dialAs connects to an address of 127.0.0.1 or ::1 as user uid.
func dialAs(t *testing.T, uid int, address string) net.Conn {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: to.Port, Addr: [4]byte{127, 0, 0, 1}})
	if to.IP.To4() == nil {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte{15: 1}}
	}
	type result struct {
		fd  int
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if uid != os.Geteuid() {
			// Package syscall's version would change all threads.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
				made <- result{0, e}
				return
			}
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, at)
		}
		made <- result{fd, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatal(r.err)
	}
	file := os.NewFile(uintptr(r.fd), address)
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// as returns a transport over one connection of user uid.
func as(t *testing.T, uid int, s *server) http.RoundTripper {
	conn := dialAs(t, uid, s.Addresses()[0])
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
}

// TestForeignUserIsRefused: without a key a loopback address serves its own user and root alone.
func TestForeignUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root, to connect as another user")
	}
	const nobody = 65534
	_, socket := fake(t, fakegen.Script{Chat: true})
	keys, _ := parseKeys("0123456789abcdef")
	for name, c := range map[string]struct {
		o    Options
		uid  int
		want int
	}{
		"another user":             {Options{}, nobody, 403},
		"another user, over IPv6":  {Options{Listen: []string{"[::1]:0"}}, nobody, 403},
		"its own user":             {Options{}, 0, 200},
		"its own user, over IPv6":  {Options{Listen: []string{"[::1]:0"}}, 0, 200},
		"another user, where open": {Options{OpenLoopback: true}, nobody, 200},
		"another user with a key":  {Options{Keys: keys}, nobody, 200},
	} {
		c.o.Generators = []Generator{{Socket: socket}}
		s := serve(t, c.o)
		for _, path := range []string{"/v1/models", "/health", "/ready"} {
			r := s.request("GET", path, "", "Authorization", "Bearer 0123456789abcdef")
			answer, err := as(t, c.uid, s).RoundTrip(r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_ = answer.Body.Close()
			unready := path == "/ready" && answer.StatusCode == http.StatusServiceUnavailable // on a busy machine
			if answer.StatusCode != c.want && !(unready && c.want == http.StatusOK) {
				t.Errorf("%s: %s: %d, want %d", name, path, answer.StatusCode, c.want)
			}
		}
	}
}

// TestHostOf: all addresses of a host of IPv6 are one user.
func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:0:1::5": "2001:db8:0:1::/64",
		"2001:db8:0:1:ffff::": "2001:db8:0:1::/64", "2001:db8:0:2::5": "2001:db8:0:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := hostOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestOwnerOf: the kernel tells whose a connection is while a process holds it, and of a closed one
// it tells nobody's, though its uid is then given as 0.
func TestOwnerOf(t *testing.T) {
	uids := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		uids = append(uids, 4321)
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, uid := range uids {
			dialled := dialAs(t, uid, l.Addr().String())
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			if p := peerOf(accepted); p.uid != uid {
				t.Errorf("%s: %+v, want uid %d", address, p, uid)
			}
			if err := dialled.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if p := peerOf(accepted); p.uid != uid {
				t.Errorf("%s half closed: %+v, want uid %d", address, p, uid)
			}
			_ = dialled.Close()
			remote, local := accepted.RemoteAddr().(*net.TCPAddr), accepted.LocalAddr().(*net.TCPAddr)
			if owner, err := ownerOf(remote.AddrPort(), local.AddrPort()); !errors.Is(err, errNoOwner) {
				t.Errorf("%s closed: owner %d, %v", address, owner, err)
			}
			if p := peerOf(accepted); p.uid != unknownUID {
				t.Errorf("%s closed: %+v", address, p)
			}
		}
	}
}
