//go:build linux

package devices

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded names the environment variable that makes Become execute another program under a guard.
const guarded = "REEL_E2E_GUARDED"

// Become executes the guarded program if [Start] made this process, and then does not return. Otherwise it does
// nothing. Call it first in main.
func Become() {
	value, is := os.LookupEnv(guarded)
	if !is {
		return
	}
	_ = os.Unsetenv(guarded)
	var fd int
	number, program, _ := strings.Cut(value, " ")
	_, err := fmt.Sscan(number, &fd)
	if err == nil {
		err = become(fd, program)
	}
	fmt.Fprintf(os.Stderr, "devices: %s: %v\n", program, err)
	os.Exit(126)
}

// become installs the seccomp filter, sends its listener over the socket fd, and executes the program.
func become(fd int, program string) error {
	runtime.LockOSThread() // the filter belongs to the thread that calls exec
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := opens()
	f := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	return unix.Exec(program, os.Args, os.Environ())
}

// legacy lists, by architecture, the older system calls that open a file: open and creat. Their first argument is the
// path.
var legacy = map[string][]uint32{"amd64": {2, 85}}

// architectures are the kernel's AUDIT_ARCH numbers.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// opens returns a filter that asks the listener about every open and allows all other system calls.
func opens() (filter []unix.SockFilter) {
	const number, architecture = 0, 4 // offsets in struct seccomp_data
	calls := append([]uint32{unix.SYS_OPENAT, unix.SYS_OPENAT2}, legacy[runtime.GOARCH]...)
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: architecture},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: architectures[runtime.GOARCH]},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number})
	for i, call := range calls {
		jump := uint8(len(calls) - i) // to SECCOMP_RET_USER_NOTIF
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: jump, K: call})
	}
	return append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
}
