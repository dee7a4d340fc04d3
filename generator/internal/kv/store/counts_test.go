package store

import (
	"io"
	"os"
	"testing"
)

// Counts are those of this process, and of the files that were there. They are told while a call waits for the disk.
func TestCounts(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 3)
	r.reopen()
	data := make([]byte, testBytes)
	for _, id := range ids {
		if err := r.Read(id, data); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(r.path(ids[2]))
	if err == nil {
		text[len(text)-1] ^= 1
		err = os.WriteFile(r.path(ids[2]), text, fileMode)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Read(ids[2], data)
	r.chain("b", 1, 0, 1)
	want := Counts{Pages: 3, Bytes: 3 * block, Read: 3, Written: 1, Errors: 1}
	if c := r.Counts(); c != want {
		t.Errorf("%+v, wants %+v", c, want)
	}
	r.reader = func(*os.File) io.ReaderAt { return broken{} }
	_ = r.Read(ids[0], data)
	want.Errors, want.Off = 2, true
	r.mu.Lock()
	if c := r.Counts(); c != want {
		t.Errorf("after an error of the disk: %+v, wants %+v", c, want)
	}
	r.mu.Unlock()
}
