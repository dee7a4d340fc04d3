package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// mapped reports whether a file is mapped by this process.
func mapped(t *testing.T, file string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("wants /proc: ", err)
	}
	return strings.Contains(string(maps), file)
}

// A file of several pieces, the last of them not whole, is unmapped by Close before it returns, and by Release soon.
func TestClosedFilesAreUnmapped(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, singleName)
	header := pack(`{"a":{"dtype":"F32","shape":[10485761],"data_offsets":[0,41943044]}}`, 0)
	if err := os.WriteFile(file, header, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, int64(len(header))+41943044); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*Checkpoint) error{"Close": (*Checkpoint).Close, "Release": (*Checkpoint).Release} {
		before := descriptors(t)
		c, err := Open(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		if !mapped(t, file) {
			t.Fatal("the file is not mapped")
		}
		if err := end(c); err != nil {
			t.Error(name, err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("%s leaves %d descriptors of %d", name, after, before)
		}
		for until := time.Now().Add(time.Minute); mapped(t, file); time.Sleep(time.Millisecond) {
			if name == "Close" || time.Now().After(until) {
				t.Fatalf("%s leaves the file mapped", name)
			}
		}
	}
}

// Without a mapping there is nothing to unmap.
func TestReleaseOfACopy(t *testing.T) {
	c, err := Open(fstest.MapFS{singleName: {Data: pack(good, 16)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
}
