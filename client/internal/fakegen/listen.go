package fakegen

import (
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenAs listens at path as user uid, which clients see as their peer's. A uid other
// than the process's own needs root.
func ListenAs(path string, uid int) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	result := make(chan error)
	go func() { result <- listenAs(fd, uid) }()
	if err := <-result; err != nil {
		return nil, err
	}
	return net.FileListener(file)
}

// listenAs calls listen on the socket fd from a thread of user uid.
func listenAs(fd, uid int) error {
	runtime.LockOSThread() // the thread ends with the goroutine
	if uid != os.Geteuid() {
		// Package syscall's version would change all threads.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
			return e
		}
	}
	return unix.Listen(fd, 16)
}
