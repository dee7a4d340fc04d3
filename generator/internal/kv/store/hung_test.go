package store

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

// While a change of a file hangs, prompts look for stored pages and users list theirs all the same. Afterwards the
// change is made.
func TestAHungDiskHoldsUpNoPrompt(t *testing.T) {
	for name, call := range map[string]func(r *rig, ids []ID) error{
		"a page gets its name": func(r *rig, _ []ID) error {
			_, _, err := r.Write(page(ID{}, "b", 2, 7), dataOf(page(ID{}, "b", 2, 7)))
			return err
		},
		"a page gives way": func(r *rig, _ []ID) error {
			r.Store.Bytes = 4 * block
			_, gone, err := r.Write(page(ID{}, "b", 2, 7), dataOf(page(ID{}, "b", 2, 7)))
			if len(gone) != 1 {
				t.Errorf("%v gave way", gone)
			}
			return err
		},
		"a page is read": func(r *rig, ids []ID) error { return r.Read(ids[2], make([]byte, testBytes)) },
		"pages are dropped": func(r *rig, _ []ID) error {
			if n := r.Drop(3, "c"); n != 1 {
				t.Errorf("%d pages dropped", n)
			}
			return nil
		},
	} {
		r := newRig(t)
		ids := r.chain("a", 1, 0, 3)
		r.chain("c", 3, 0, 1)
		hangs, goesOn := make(chan struct{}), make(chan struct{})
		r.hang = func() {
			r.hang = nil
			close(hangs)
			<-goesOn
		}
		ended := make(chan error)
		go func() { ended <- call(r, ids) }()
		<-hangs
		found := make(chan []ID, 1)
		go func() {
			var prompt []int32
			for n := range int32(3) {
				prompt = append(prompt, page(ID{}, "a", 1, n).Tokens...)
			}
			got := r.Longest("a", prompt)
			r.UsageOf("a")
			r.Usage()
			found <- got
		}()
		select {
		case got := <-found:
			if len(got) < 2 || !slices.Equal(got, ids[:len(got)]) { // one may have given way
				t.Errorf("%s: %d pages of %d are found", name, len(got), len(ids))
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: a prompt waits for the disk", name)
		}
		close(goesOn)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.reopen()
		if pages, _ := r.Usage(); pages != len(r.found) || r.lines != nil {
			t.Errorf("%s: %d pages, %d files, %q", name, pages, len(r.found), r.lines)
		}
	}
}

// A page that is dropped while it gets its name leaves no file, and one that is dropped before that is not stored.
func TestADropBesideAWrite(t *testing.T) {
	r := newRig(t)
	p := page(ID{}, "a", 1, 0)
	hangs, goesOn := make(chan struct{}), make(chan struct{})
	r.hang = func() {
		r.hang = nil
		close(hangs)
		<-goesOn
	}
	written, dropped := make(chan error), make(chan int)
	go func() {
		_, _, err := r.Write(p, dataOf(p))
		written <- err
	}()
	<-hangs
	go func() { dropped <- r.Drop(1, "a") }()
	select {
	case n := <-dropped:
		t.Fatalf("%d pages are dropped before the page has its name", n)
	case <-time.After(50 * time.Millisecond):
	}
	close(goesOn)
	if err, n := <-written, <-dropped; err != nil || n != 1 {
		t.Errorf("%v, %d pages dropped", err, n)
	}
	write := r.write
	r.write = func(f *os.File, part []byte) (int, error) {
		r.Drop(1, "a")
		return write(f, part)
	}
	if _, _, err := r.Write(p, dataOf(p)); !errors.Is(err, ErrGone) {
		t.Errorf("%v, wants %v", err, ErrGone)
	}
	r.reopen()
	if pages, size := r.Usage(); pages != 0 || size != 0 || r.lines != nil {
		t.Errorf("%d pages of %d bytes are left, %q", pages, size, r.lines)
	}
}
