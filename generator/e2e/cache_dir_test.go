//go:build linux

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/protocol"
)

// storedPages counts the files of pages below a directory.
func storedPages(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".page") {
			n++
		}
		return nil
	})
	return n
}

// onDisk asks for the pages in files that p's user can find; 0 before the directory is open.
func (p *peer) onDisk() (pages int) {
	p.send(&protocol.CacheRequest{})
	for _, tier := range expect[*protocol.Cached](p).Tiers {
		if tier.Tier == protocol.TierDisk {
			pages = tier.Pages
		}
	}
	return pages
}

func awaits(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// Pages outlive a killed generator. A second one on the same directory serves without it.
func TestPagesOutliveAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "cache")
	flags := []string{"--cache-dir", dir, "--host-cache", "16MiB"}
	g := serve(t, flags...)
	if n := g.peer().found(1); n != 0 {
		t.Errorf("%d tokens found at first", n)
	}
	awaits(t, func() bool { return storedPages(dir) == 6 })
	second := serve(t, flags...)
	awaits(t, func() bool { return strings.Contains(second.stderr.String(), "in use by another generator") })
	if n := second.peer().found(1); n != 0 {
		t.Errorf("%d tokens found without the directory", n)
	}
	g.signal(syscall.SIGKILL)
	<-g.exited
	again := serve(t, flags...)
	p := again.peer()
	awaits(t, func() bool { return p.onDisk() == 6 })
	if n := p.found(1); n != 96 {
		t.Errorf("%d tokens found after a kill, want 96", n)
	}
	if p.cachedPages(true); storedPages(dir) != 0 || p.found(2) != 0 {
		t.Errorf("%d files are left after the drop", storedPages(dir))
	}
}

// A directory that others can enter, or one without a use, ends the start with advice.
func TestBadCacheDir(t *testing.T) {
	t.Parallel()
	open := tempDir(t)
	must(t, os.Chmod(open, 0o755))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--cache-dir", open, "--host-cache", "16MiB"}, "chmod 700"},
		{[]string{"--cache-dir", filepath.Join(open, "new"), "--host-cache", "0"}, "--host-cache 1GiB"},
		{[]string{"--cache-dir", filepath.Join(open, "new"), "--cache-scope", "off"}, "leave one out"},
	} {
		socket := filepath.Join(tempDir(t), "generator.sock")
		p := prepare(t, "reel-generator", append(c.args, "--socket", socket, "--device", "host")...)
		p.run(failure.ExitConfig)
		if text := p.stderr.String(); !strings.Contains(text, c.want) {
			t.Errorf("%v: %s", c.args, text)
		}
	}
}
