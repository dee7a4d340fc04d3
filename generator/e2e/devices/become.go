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

// guarded names the variable that has a program become another one under a guard.
const guarded = "REEL_E2E_GUARDED"

// Become returns at once, but in the process that Start has started: that becomes
// the guarded program.
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

// become hands a seccomp listener to fd, and this process to the program.
func become(fd int, program string) error {
	runtime.LockOSThread() // the filter is this thread's, until it is the program's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := opens()
	f := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&f)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	return unix.Exec(program, os.Args, os.Environ())
}

// legacy are the calls beside openat and openat2 that open a file: open and creat.
// Their first argument is the path.
var legacy = map[string][]uint32{"amd64": {2, 85}}

// architectures are the kernel's numbers of them.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// opens is the filter that asks the listener at every open, and lets all else
// through.
func opens() (filter []unix.SockFilter) {
	const number, architecture = 0, 4 // where struct seccomp_data has them
	calls := append([]uint32{unix.SYS_OPENAT, unix.SYS_OPENAT2}, legacy[runtime.GOARCH]...)
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: architecture},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: architectures[runtime.GOARCH]},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number})
	for i, call := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(calls) - i), K: call})
	}
	return append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
}
