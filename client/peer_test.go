package client

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
)

// TestPeer: Dial and ReadStatus report the listening process before they send anything,
// even to a generator that never gets ready.
func TestPeer(t *testing.T) {
	for _, uid := range []int{os.Getuid(), 65534} {
		if uid != os.Getuid() && os.Getuid() != 0 {
			t.Log("a listener of another user needs root")
			continue
		}
		for _, script := range []fakegen.Script{{}, {Loading: 100}} {
			path := socket(t)
			l, err := fakegen.ListenAs(path, uid)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go fakegen.New(script).Serve(l)
			var peers []Peer
			o := Options{Socket: path, OnPeer: func(p Peer) { peers = append(peers, p) }}
			if c, err := Dial(t.Context(), o); err == nil {
				c.Close()
			}
			if _, err := ReadStatus(t.Context(), o); err != nil {
				t.Error(err)
			}
			want := Peer{Socket: path, UID: uid, PID: os.Getpid()}
			if len(peers) != 2 || peers[0] != want || peers[1] != want {
				t.Errorf("peers %+v, want %+v twice", peers, want)
			}
		}
	}
}

func TestPeerOfAPipe(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if p, known := peerOf(ours, "x"); known {
		t.Errorf("got %+v", p)
	}
}

func TestForeign(t *testing.T) {
	for uid, want := range map[int]bool{0: false, os.Getuid(): false, 54321: true} {
		if got := (Peer{UID: uid}).Foreign(); got != want {
			t.Errorf("uid %d: %t", uid, got)
		}
	}
	// Owning some directory makes no service: it has to be the service's directory.
	dir := filepath.Join(t.TempDir(), "reel")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if (Peer{Socket: filepath.Join(dir, "generator.sock"), UID: os.Getuid()}).Service() {
		t.Error("a socket elsewhere is the service's")
	}
	if owner(dir) != os.Getuid() || owner(filepath.Join(dir, "none")) != -1 {
		t.Errorf("owners %d, %d", owner(dir), owner(filepath.Join(dir, "none")))
	}
	if text := (Peer{UID: 54321}).String(); !strings.HasPrefix(text, "uid 54321") {
		t.Errorf("%q", text)
	}
}
