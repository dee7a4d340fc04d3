package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
)

func TestCandidates(t *testing.T) {
	own := fmt.Sprintf("/tmp/reel-%d/generator.sock", os.Getuid())
	for _, c := range []struct {
		named, env, runtime string
		want                []candidate
	}{
		{"", "", "/run/user/7", []candidate{
			{"/run/user/7/reel/generator.sock", false}, {own, true}, {"/run/reel/generator.sock", false}}},
		{"", "", "", []candidate{{own, true}, {"/run/reel/generator.sock", false}}},
		{"", "/e.sock", "/run/user/7", []candidate{{"/e.sock", false}}},
		{"/n.sock", "/e.sock", "/run/user/7", []candidate{{"/n.sock", false}}},
	} {
		t.Setenv(SocketEnv, c.env)
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		if got := candidates(c.named); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("named %q, env %q: %v, want %v", c.named, c.env, got, c.want)
		}
	}
}

func TestFindTakesTheFirstThatExists(t *testing.T) {
	absent, first, second := socket(t), socket(t), socket(t)
	listen(t, first, fakegen.Script{})
	listen(t, second, fakegen.Script{})
	path, err := find([]candidate{{path: absent}, {path: first}, {path: second}})
	if err != nil || path != first {
		t.Errorf("found %q, %v", path, err)
	}
}

func TestFindMayRetryIfOneDirectoryExists(t *testing.T) {
	missing := candidate{path: filepath.Join(t.TempDir(), "none", "generator.sock")}
	absent := candidate{path: socket(t)}
	if _, err := find([]candidate{missing, absent}); !mayRetry(err) || !errors.Is(err, ErrNoGenerator) {
		t.Errorf("one directory: %v", err)
	}
	if _, err := find([]candidate{missing, missing}); mayRetry(err) || !errors.Is(err, ErrNoGenerator) {
		t.Errorf("no directory: %v", err)
	}
}

func TestSharedDirectoryMustBePrivate(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{})
	shared := candidate{path: path, shared: true}
	if err := shared.check(); err != nil {
		t.Fatalf("an own directory: %v", err)
	}
	dir := filepath.Dir(path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := shared.check(); err == nil {
		t.Error("accepted a directory that others may write")
	}
	if err := (candidate{path: path}).check(); err != nil {
		t.Errorf("refused it although it is not shared: %v", err)
	}
}

func TestSharedDirectoryMustNotBeALink(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		t.Fatal(err)
	}
	err := (candidate{path: filepath.Join(link, "generator.sock"), shared: true}).check()
	if err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("followed a link: %v", err)
	}
}

func TestSharedDirectoryMustBelongToThisUser(t *testing.T) {
	dir := "/" // root's, while the test runs as another user
	if os.Getuid() == 0 {
		dir = t.TempDir()
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkPrivate(dir); err == nil {
		t.Errorf("accepted %s, which belongs to another user", dir)
	}
}
