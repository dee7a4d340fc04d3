package protocol

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// childEnv names the case that a child process of this test runs.
const childEnv = "REEL_PROTOCOL_CHILD"

// hostile lists the inputs that end a process that decodes them without Scan, with the
// runtime's message; the second alternative is that of the race detector.
var hostile = map[string]struct {
	body []byte
	into func() any
	dies string // regular expression
}{
	"list":    {[]byte("\xdd\xff\xff\xff\xff"), func() any { return new(any) }, "out of memory|address space"},
	"numbers": {[]byte("\xdd\xff\xff\xff\xff"), func() any { return new([]int32) }, "out of memory|address space"},
	"deep":    {[]byte(nested(2_000_000)), func() any { return new(any) }, "stack overflow"},
	"skipped": {pairs("type", text("hello"), "version", "\x01", "x", nested(2_000_000)),
		func() any { return new(Hello) }, "stack overflow"},
}

// TestHostileInputWithoutScan: without Scan each hostile input ends the process, which
// neither recover nor an error value could prevent.
func TestHostileInputWithoutScan(t *testing.T) {
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runChild(name)
			if err == nil || !regexp.MustCompile("fatal error: .*("+c.dies+")").MatchString(out) {
				t.Errorf("decoding unscanned input: %v, want the process to end with %s\n%.600s", err, c.dies, out)
			}
		})
	}
}

// TestHostileInput: with Scan each is an ordinary error.
func TestHostileInput(t *testing.T) {
	for name, c := range hostile {
		for _, decode := range []func([]byte) (any, error){DecodeRequest, DecodeReply} {
			if _, err := decode(c.body); code(err) != CodeBadFrame {
				t.Errorf("%s: %v, want %s", name, err, CodeBadFrame)
			}
		}
	}
}

func runChild(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+name, "GOTRACEBACK=none")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// hostileChild decodes a hostile input without Scan, within 1 GiB of address space and
// 64 MiB of stack, so that it ends soon and does not disturb the machine.
func hostileChild(name string) {
	debug.SetMaxStack(64 << 20)
	if err := limitAddressSpace(1 << 30); err != nil {
		fmt.Println(err)
		return
	}
	c := hostile[name]
	fmt.Println("decoded:", msgpack.Unmarshal(c.body, c.into()))
}

// limitAddressSpace lets this process map n more bytes than now.
func limitAddressSpace(n uint64) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)
	if err != nil {
		return err
	}
	limit := pages*uint64(os.Getpagesize()) + n
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit})
}
