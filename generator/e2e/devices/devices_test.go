//go:build linux

package devices

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Become()
	os.Exit(m.Run())
}

// numbers is an example of /proc/devices.
const numbers = `Character devices:
  1 mem
195 nvidia
195 nvidiactl
511 nvidia-uvm
238 nvidia-caps

Block devices:
511 nvidia-uvm
`

// A unit's rules have the same meaning as for systemd: a name allows all majors with that name, a path allows one
// node, and a name or path that this machine lacks allows nothing.
func TestParseUnit(t *testing.T) {
	unit := "[Service]\nDevicePolicy=closed\nDeviceAllow=/dev/null rw\nDeviceAllow=char-nvidia rw\n" +
		"DeviceAllow=char-nvidia-* rw\nDeviceAllow=char-nvidia-frontend rw\n"
	rules, err := ParseUnit([]byte(unit), []byte(numbers))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[Node]string{
		{Path: "/dev/full", Major: 1, Minor: 7}:                      "",
		{Path: "/dev/null", Major: 1, Minor: 3}:                      "/dev/null",
		{Path: "/dev/nvidia0", Major: 195}:                           "char-nvidia",
		{Path: "/dev/nvidiactl", Major: 195, Minor: 255}:             "char-nvidia",
		{Path: "/dev/nvidia-uvm", Major: 511}:                        "char-nvidia-*",
		{Path: "/dev/nvidia-caps/nvidia-cap1", Major: 238, Minor: 1}: "char-nvidia-*",
		{Path: "/dev/sda", Block: true, Major: 511}:                  "",
	} {
		var by []string
		for _, r := range rules {
			if r.Allows(n) {
				by = append(by, r.Text)
			}
		}
		if got := strings.Join(by, " "); got != want {
			t.Errorf("%+v is allowed by %q, wants %q", n, got, want)
		}
	}
	for i, here := range []bool{true, true, true, false} {
		if rules[i].Here() != here {
			t.Errorf("%v: is on this machine: %t", rules[i], !here)
		}
	}
	for _, bad := range []string{"DeviceAllow=char-nvidia rw\n", "DevicePolicy=closed\nDeviceAllow=char-nvidia r\n"} {
		if _, err := ParseUnit([]byte(bad), nil); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// guard runs a shell script under a guard, and returns its output and exit code.
func guard(t *testing.T, script string, allow func(Node) bool) (*Guard, string, int) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(sh, "-c", script)
	cmd.Stdout, cmd.Stderr = &out, &out
	g, err := Start(cmd, allow)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is returned below
	g.Wait()
	return g, out.String(), cmd.ProcessState.ExitCode()
}

func paths(list []Node) (all []string) {
	for _, n := range list {
		all = append(all, n.Path)
	}
	return all
}

// A guard records the device nodes that a program and its children open, also by relative paths and through links,
// and no other files.
func TestGuardSeesOpens(t *testing.T) {
	link := t.TempDir() + "/link"
	if err := os.Symlink("/dev/full", link); err != nil {
		t.Fatal(err)
	}
	script := "cd /dev && cat null /etc/hostname >/dev/null; (: <" + link + "); exit 7"
	g, out, code := guard(t, script, func(Node) bool { return true })
	if code != 7 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	opened := paths(g.Opened())
	for _, want := range []string{"/dev/null", link} {
		if !slices.Contains(opened, want) {
			t.Errorf("%s is missing in %q", want, opened)
		}
	}
	relative := func(p string) bool { return strings.HasSuffix(p, "/null") && p != "/dev/null" }
	if !slices.ContainsFunc(opened, relative) {
		t.Errorf("null by its relative path is missing in %q", opened)
	}
	if slices.Contains(opened, "/etc/hostname") || len(g.Denied()) > 0 {
		t.Errorf("opened %q, denied %q", opened, paths(g.Denied()))
	}
}

// A node that is not allowed is refused with EPERM, as by systemd, and recorded.
func TestGuardRefuses(t *testing.T) {
	g, out, code := guard(t, "cat /dev/full", func(n Node) bool { return n.Minor != 7 })
	denied := paths(g.Denied())
	if code != 1 || !strings.Contains(out, "Operation not permitted") || !slices.Equal(denied, []string{"/dev/full"}) {
		t.Errorf("exit code %d, denied %q: %s", code, denied, out)
	}
}

// Held returns the nodes that a process has open.
func TestHeld(t *testing.T) {
	f, err := os.Open("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if held := Held(os.Getpid()); !slices.Contains(held, Node{Path: "/dev/full", Major: 1, Minor: 7}) {
		t.Errorf("got %+v", held)
	}
}
