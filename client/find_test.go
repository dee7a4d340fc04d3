package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel/client/internal/fakegen"
)

func TestPlaces(t *testing.T) {
	own := fmt.Sprintf("/tmp/reel-%d/generator.sock", os.Getuid())
	for _, c := range []struct {
		named, env, runtime string
		want                []place
	}{
		{"", "", "/run/user/7", []place{{"/run/user/7/reel/generator.sock", false}, {own, true}, {"/run/reel/generator.sock", false}}},
		{"", "", "", []place{{own, true}, {"/run/reel/generator.sock", false}}},
		{"", "/e.sock", "/run/user/7", []place{{"/e.sock", false}}},
		{"/n.sock", "/e.sock", "/run/user/7", []place{{"/n.sock", false}}},
	} {
		t.Setenv(SocketEnv, c.env)
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		if got := places(c.named); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("named %q, env %q: %v, want %v", c.named, c.env, got, c.want)
		}
	}
}

func TestFindTakesTheFirstThatExists(t *testing.T) {
	absent, first, second := socket(t), socket(t), socket(t)
	listen(t, first, fakegen.Script{})
	listen(t, second, fakegen.Script{})
	path, err := find([]place{{path: absent}, {path: first}, {path: second}})
	if err != nil || path != first {
		t.Errorf("found %q, %v", path, err)
	}
}

func TestFindHopesWhereOneDirectoryIsThere(t *testing.T) {
	missing := place{path: filepath.Join(t.TempDir(), "none", "generator.sock")}
	absent := place{path: socket(t)}
	if _, err := find([]place{missing, absent}); !hopeful(err) || !errors.Is(err, ErrNoGenerator) {
		t.Errorf("one directory: %v", err)
	}
	if _, err := find([]place{missing, missing}); hopeful(err) || !errors.Is(err, ErrNoGenerator) {
		t.Errorf("no directory: %v", err)
	}
}

func TestSharedDirectoryMustBePrivate(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{})
	shared := place{path: path, shared: true}
	if err := shared.check(); err != nil {
		t.Fatalf("an own directory: %v", err)
	}
	dir := filepath.Dir(path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := shared.check(); err == nil {
		t.Error("took a directory that others may write")
	}
	if err := (place{path: path}).check(); err != nil {
		t.Errorf("refused it where it is not shared: %v", err)
	}
}

func TestSharedDirectoryIsNoLink(t *testing.T) {
	path := socket(t)
	listen(t, path, fakegen.Script{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		t.Fatal(err)
	}
	err := (place{path: filepath.Join(link, "generator.sock"), shared: true}).check()
	if err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("followed a link: %v", err)
	}
}

func TestSharedDirectoryBelongsToUs(t *testing.T) {
	dir := "/" // of root, where this is another user
	if os.Getuid() == 0 {
		dir = t.TempDir()
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := private(dir); err == nil {
		t.Errorf("%s belongs to another user and was taken", dir)
	}
}
