package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Wake removes the record of a generator that slept and no other, and does not wait for a named
// pipe in the record's place.
func TestWake(t *testing.T) {
	j := Journal{Path: filepath.Join(t.TempDir(), "g.state"), Owned: true}
	exists := func() bool {
		_, err := os.Lstat(j.Path)
		return err == nil
	}
	j.Draining()
	j.Wake()
	if !exists() {
		t.Error("the record of a drain is removed")
	}
	j.Sleeping(nil)
	j.Wake()
	if exists() {
		t.Error("the record of sleep is left")
	}
	if err := syscall.Mkfifo(j.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		j.Wake()
	}()
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the pipe")
	}
}
