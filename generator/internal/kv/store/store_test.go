package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	testTokens = 4
	testBytes  = 64
)

// rig is a store in a directory that a test opens again and again.
type rig struct {
	*Store
	t     *testing.T
	o     Options
	found []Page
	mu    sync.Mutex
	lines []string
}

// newRig returns a rig with an open store. Tests change its options and reopen it.
func newRig(t *testing.T) *rig {
	r := &rig{t: t, o: Options{Dir: filepath.Join(t.TempDir(), "cache"), Bytes: 1 << 20, Identity: [32]byte{1},
		PageTokens: testTokens, PageBytes: testBytes}}
	r.o.Warn = func(line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
	}
	t.Cleanup(r.close)
	r.reopen()
	return r
}

func (r *rig) close() {
	if r.Store != nil {
		if err := r.Close(); err != nil {
			r.t.Error(err)
		}
		r.Store = nil
	}
}

// reopen opens the store as the next process would.
func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	r.lines = nil
	s, err := Open(r.t.Context(), r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Store, r.found = s, s.chained(r.t)
}

// chained returns the pages that prompts can find, parents before the pages after them.
func (s *Store) chained(t *testing.T) (found []Page) {
	t.Helper()
	after := map[ID][]Page{}
	for id, e := range s.index.entries {
		if p, _, err := s.scanHead(id); err == nil {
			after[p.Parent] = append(after[p.Parent], p)
		} else if e.owner != s.index.foreign {
			t.Error(err)
		}
	}
	found = after[ID{}]
	for i := 0; i < len(found); i++ {
		found = append(found, after[found[i].ID]...)
	}
	return found
}

// dataOf returns the data that tests store for a page: any other page has others.
func dataOf(p Page) []byte {
	seed := binary.LittleEndian.AppendUint64(nil, p.User)
	for _, t := range p.Tokens {
		seed = binary.LittleEndian.AppendUint32(seed, uint32(t))
	}
	return bytes.Repeat(append(append(seed, p.Scope...), p.Parent[:]...), testBytes)[:testBytes]
}

// page returns a page after parent whose tokens begin with n.
func page(parent ID, scope string, user uint64, n int32) Page {
	return Page{Parent: parent, Scope: scope, User: user, Tokens: []int32{n, -1, 1 << 30, 7}}
}

// put writes a page and returns its ID, and the pages that gave way.
func (r *rig) put(p Page) (ID, []ID) {
	r.t.Helper()
	id, gone, err := r.Write(p, dataOf(p))
	if err != nil {
		r.t.Fatal(err)
	}
	return id, gone
}

// chain writes n pages, each after the one before.
func (r *rig) chain(scope string, user uint64, from int32, n int) (ids []ID) {
	r.t.Helper()
	var parent ID
	for i := range n {
		parent, _ = r.put(page(parent, scope, user, from+int32(i)))
		ids = append(ids, parent)
	}
	return ids
}

// served reads a page and reports whether it was there. Other data than were written fail the test.
func (r *rig) served(p Page) bool {
	r.t.Helper()
	data := make([]byte, testBytes)
	if err := r.Read(r.ID(p), data); err != nil {
		return false
	}
	if !bytes.Equal(data, dataOf(p)) {
		r.t.Error("a page was served with other data than were written")
	}
	return true
}

// path returns the path of a page's file.
func (r *rig) path(id ID) string { return filepath.Join(r.o.Dir, pathOf(id)) }

func (r *rig) has(id ID) bool {
	return slices.ContainsFunc(r.found, func(p Page) bool { return p.ID == id })
}

func TestPagesOutliveARestart(t *testing.T) {
	r := newRig(t)
	written := []Page{page(ID{}, "a", 1, 0)}
	for i, parent := range []int{0, 1, 0, 3} { // a fork after the first page
		id, _ := r.put(written[parent])
		written = append(written, page(id, "a", uint64(i), int32(i)))
	}
	written = append(written, page(ID{}, "", 9, 0), page(ID{}, "b", 9, 0))
	for _, p := range written {
		r.put(p)
	}
	for range 2 {
		r.reopen()
		if len(r.found) != len(written) || r.lines != nil {
			t.Fatalf("%d pages of %d after a restart, warnings %q", len(r.found), len(written), r.lines)
		}
		for i, p := range r.found {
			same := func(w Page) bool {
				return p.ID == r.ID(w) && p.Parent == w.Parent && p.Scope == w.Scope && p.User == w.User &&
					slices.Equal(p.Tokens, w.Tokens)
			}
			if !slices.ContainsFunc(written, same) || !r.served(p) {
				t.Errorf("page %d is not one that was written: %+v", i, p)
			}
			before := slices.ContainsFunc(r.found[:i], func(b Page) bool { return b.ID == p.Parent })
			if p.Parent != (ID{}) && !before {
				t.Errorf("page %d comes before its parent", i)
			}
		}
	}
	if pages, size := r.Usage(); pages != len(written) || size != int64(len(written))*block {
		t.Errorf("%d pages of %d bytes are counted", pages, size)
	}
}

// Nobody but the owner can read a file or enter a folder.
func TestModes(t *testing.T) {
	r := newRig(t)
	r.chain("a", 1, 0, 3)
	err := filepath.WalkDir(r.o.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A page depends on identity, scope, all tokens before it and its own.
func TestIDs(t *testing.T) {
	r := newRig(t)
	seen := map[ID]bool{}
	for identity := range byte(2) {
		r.o.Identity[5] = identity
		r.reopen()
		for _, scope := range []string{"", "a", "b"} {
			for first := range int32(2) {
				head := page(ID{}, scope, 0, first)
				for second := range int32(2) {
					seen[r.ID(page(r.ID(head), scope, 0, second))] = true
				}
				seen[r.ID(head)] = true
			}
		}
	}
	if len(seen) != 2*3*2*3 {
		t.Errorf("%d different digests of %d pages", len(seen), 2*3*2*3)
	}
}

// Files of another identity or version are not served, are reported in one line, and give way first.
func TestOtherIdentity(t *testing.T) {
	r := newRig(t)
	old := r.chain("a", 1, 0, 2)
	r.o.Identity[31] = 1
	r.reopen()
	own := r.chain("a", 1, 0, 2)
	older := r.path(own[1])
	text, err := os.ReadFile(older)
	if err != nil {
		t.Fatal(err)
	}
	text[8]++ // the version
	if err := os.WriteFile(older, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.o.Bytes = 5 * block
	r.reopen()
	if len(r.found) != 1 || r.found[0].ID != own[0] || len(r.lines) != 1 || !strings.Contains(r.lines[0], "3 pages") {
		t.Fatalf("%d pages, warnings %q", len(r.found), r.lines)
	}
	for _, id := range append(old, own[1]) {
		if err := r.Read(id, make([]byte, testBytes)); !errors.Is(err, ErrGone) {
			t.Errorf("a page of another identity or version: %v", err)
		}
	}
	if pages, size := r.Usage(); pages != 1 || size != 4*block {
		t.Errorf("%d pages and %d bytes are counted", pages, size)
	}
	r.put(page(own[0], "a", 1, 1)) // takes the older version's place
	if _, gone := r.put(page(own[0], "a", 1, 2)); gone != nil {
		t.Errorf("%d pages gave way though there was room", len(gone))
	}
	for n := range 2 {
		if _, gone := r.put(page(ID{}, "b", 1, int32(n))); len(gone) != 1 || !slices.Contains(old, gone[0]) {
			t.Errorf("%v gave way, not a page of the other identity", gone)
		}
	}
}

// A page's file under another page's name is not served: the tokens and the parent are those of the name.
func TestPlantedCollision(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 2)
	text, err := os.ReadFile(r.path(ids[1]))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path(ids[0]), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(ids[0], make([]byte, testBytes)); !errors.Is(err, ErrDamaged) {
		t.Errorf("the file of another page: %v", err)
	}
}

func TestDrop(t *testing.T) {
	r := newRig(t)
	r.chain("a", 1, 0, 2)
	r.o.Identity[0]++
	r.reopen()
	r.chain("a", 1, 0, 3)
	kept := r.chain("b", 2, 0, 2)
	r.chain("a key", 1, 0, 2)
	if n := r.Drop(1, "a"); n != 5 || r.UsageOf("a") != 0 || r.UsageOf("a key") != 2 {
		t.Errorf("%d pages dropped, wants 5 of two identities; %d are left, and %d of a name", n, r.UsageOf("a"),
			r.UsageOf("a key"))
	}
	if n := r.Drop(2, "a", "a key"); n != 0 {
		t.Errorf("another user dropped %d pages", n)
	}
	r.reopen()
	if r.UsageOf("a key") != 2 || r.Drop(1, "all", "a key") != 2 || len(r.index.scopes) != 1 {
		t.Errorf("after a restart: %v", r.index.scopes)
	}
	r.reopen()
	if len(r.found) != 2 || !r.has(kept[0]) || r.lines != nil {
		t.Errorf("%d pages are left, %q", len(r.found), r.lines)
	}
	r.Delete(kept[0])
	r.reopen()
	if len(r.found) != 0 {
		t.Error("a page without its parent is found")
	}
	r.chain("b", 2, 0, 1)
	r.reopen()
	if len(r.found) != 2 {
		t.Error("with its parent the page is not found again")
	}
}

func TestShapes(t *testing.T) {
	r := newRig(t)
	good := page(ID{}, "a", 1, 0)
	for name, bad := range map[string]func() error{
		"few tokens": func() error { return write(r, Page{Scope: "a", Tokens: []int32{1}}, dataOf(good)) },
		"few bytes":  func() error { return write(r, good, dataOf(good)[1:]) },
		"long scope": func() error { return write(r, page(ID{}, strings.Repeat("a", maxScope+1), 1, 0), dataOf(good)) },
		"read":       func() error { return r.Read(ID{}, nil) },
		"options":    func() error { return openWith(r, func(o *Options) { o.PageTokens = maxPageTokens + 1 }) },
	} {
		if err := bad(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := openWith(r, func(o *Options) { o.Bytes = block - 1 }); !errors.Is(err, ErrFull) {
		t.Errorf("a bound below one page: %v", err)
	}
	if err := write(r, good, dataOf(good)); err != nil {
		t.Errorf("a good page: %v", err)
	}
}

func write(r *rig, p Page, data []byte) error {
	_, _, err := r.Write(p, data)
	return err
}

func openWith(r *rig, change func(*Options)) error {
	o := r.o
	change(&o)
	_, err := Open(r.t.Context(), o)
	return err
}

// Goroutines write, read and delete at once: each page is served whole, and the account is that of the files.
func TestConcurrentUse(t *testing.T) {
	r := newRig(t)
	r.o.Bytes = 12 * block
	r.reopen()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 150 {
				p := page(ID{}, string(rune('a'+rand.IntN(3))), rand.Uint64N(3), rand.Int32N(4))
				p.User = uint64(p.Scope[0])
				switch rand.IntN(8) {
				case 0:
					r.Delete(r.ID(p))
				case 1:
					r.Drop(p.User, p.Scope)
				case 2, 3, 4:
					r.served(p)
				default:
					_, _, err := r.Write(p, dataOf(p))
					if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrFull) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	pages, size := r.Usage()
	if size > r.o.Bytes || size != int64(pages)*block {
		t.Errorf("%d pages take %d bytes", pages, size)
	}
	if c := r.Counts(); c.Pages != pages || c.Bytes != size || c.Read == 0 || c.Written == 0 || c.Errors != 0 || c.Off {
		t.Errorf("%+v, and %d pages take %d bytes", c, pages, size)
	}
	r.reopen()
	if len(r.found) != pages || r.lines != nil {
		t.Errorf("%d files of %d pages, %q", len(r.found), pages, r.lines)
	}
	for _, p := range r.found {
		if !r.served(p) {
			t.Error("a page is not served")
		}
	}
}
