package hardware

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHostMachineIsDescribed(t *testing.T) {
	m := HostMachine()
	if m.Name == "" || m.Driver != "" || m.MemoryUsed < 1<<20 || m.MemoryTotal <= m.MemoryUsed {
		t.Errorf("%+v", m)
	}
}

func TestProcFields(t *testing.T) {
	if got := procField(strings.NewReader("a\t: b\nmodel name\t: X: 1\nmodel name\t: Y\n"), "model name", "?"); got != "X: 1" {
		t.Errorf("got %q", got)
	}
	path := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(path, []byte("VmRSS:\t   12 kB\nBad:\tx kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"VmRSS": 12 << 10, "Bad": 0, "None": 0} {
		if got := procKiB(path, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := procKiB(path+"none", "VmRSS"); got != 0 {
		t.Errorf("no file: %d", got)
	}
}
