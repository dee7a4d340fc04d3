package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A file that was cut or changed at any byte is never served, and neither stops a start nor the pages before it.
func TestDamageAtEachByte(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 2)
	whole, err := os.ReadFile(r.path(ids[1]))
	if err != nil {
		t.Fatal(err)
	}
	second := page(ids[0], "a", 1, 1)
	for n := range whole {
		flipped := append([]byte{}, whole...)
		flipped[n] ^= 1 << rand.IntN(8)
		for _, text := range [][]byte{whole[:n], flipped} {
			if err := os.WriteFile(r.path(ids[1]), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if n%8 == 0 { // also at a restart, which reads heads only
				r.reopen()
				if !r.has(ids[0]) || r.has(ids[1]) && len(text) < len(whole) {
					t.Fatalf("byte %d: the page before it is lost, or a file that was cut is found", n)
				}
			}
			if r.served(second) {
				t.Fatalf("a file of %d bytes is served that is damaged at byte %d", len(text), n)
			}
			if left, err := os.ReadFile(r.path(ids[1])); err == nil && string(left[:12]) == string(whole[:12]) &&
				string(left[40:72]) == string(whole[40:72]) {
				t.Fatalf("a file that is damaged at byte %d is left", n)
			}
			r.put(second) // makes it whole again
		}
	}
	r.lines, r.reported = nil, false
	for range 2 {
		err := errors.Join(os.Truncate(r.path(ids[1]), 9), r.Read(ids[1], make([]byte, testBytes)))
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("a file that was cut: %v", err)
		}
		r.put(second)
	}
	if len(r.lines) != 1 {
		t.Errorf("%d warnings of many damaged pages, wants 1: %q", len(r.lines), r.lines)
	}
}

// A process that ended in the middle of a write leaves a file under a temporary name; the next start removes it.
func TestUnfinishedWrite(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 1)
	whole, err := os.ReadFile(r.path(ids[0]))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		name := filepath.Join(r.o.Dir, newFolder, "1")
		if err := os.WriteFile(name, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if n%16 == 0 {
			r.reopen()
			if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) || len(r.found) != 1 || r.lines != nil {
				t.Fatalf("after %d bytes: %v, %d pages, %q", n, err, len(r.found), r.lines)
			}
		}
	}
}

// A real process is killed while it writes: the next one opens the directory, and all it finds is whole.
func TestKill(t *testing.T) {
	if dir := os.Getenv("STORE_DIR"); dir != "" {
		writeUntilKilled(t, dir)
	}
	r := newRig(t)
	r.o.Bytes = 40 * block
	total := 0
	for range 12 {
		r.close()
		child := exec.Command(os.Args[0], "-test.run", "^TestKill$")
		child.Env = append(os.Environ(), "STORE_DIR="+r.o.Dir)
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // it writes now
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(8_000)) * time.Microsecond)
		_ = child.Process.Kill()
		_ = child.Wait()
		r.reopen()
		if r.lines != nil {
			t.Errorf("the next process warns: %q", r.lines)
		}
		for _, p := range r.found {
			if total++; !r.served(p) {
				t.Error("a page is not served")
			}
		}
	}
	if total == 0 {
		t.Error("no child wrote a page")
	}
}

func writeUntilKilled(t *testing.T, dir string) {
	r := &rig{t: t, o: Options{Dir: dir, Bytes: 40 * block, Identity: [32]byte{1}, PageTokens: testTokens,
		PageBytes: testBytes, Warn: func(string) {}}}
	r.reopen()
	fmt.Println("writes")
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		r.chain("a", 1, rand.Int32(), 1+rand.IntN(4))
	}
}

// Things that are no pages are left alone, and none of them blocks or is served.
func TestStrangeFiles(t *testing.T) {
	r := newRig(t)
	own := r.chain("a", 1, 0, 1)
	folder := filepath.Join(r.o.Dir, pages, "aa")
	name := func(last string) string { return filepath.Join(folder, strings.Repeat("a", 63)+last+suffix) }
	outside := filepath.Join(t.TempDir(), "outside")
	sparse := func() error {
		text, err := os.ReadFile(r.path(own[0]))
		return errors.Join(err, os.WriteFile(name("3"), text, 0o600), os.Truncate(name("3"), 1<<40))
	}
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(outside, []byte(magic), 0o600),
		os.Symlink(outside, name("0")), syscall.Mkfifo(name("1"), 0o600), os.Mkdir(name("2"), 0o700), sparse(),
		os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("mine"), 0o600),
		os.Symlink(filepath.Dir(outside), filepath.Join(r.o.Dir, pages, "bb")),
		os.WriteFile(filepath.Join(r.o.Dir, pages, "cc"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if len(r.found) != 1 || r.found[0].ID != own[0] || len(r.lines) != 1 ||
		!strings.Contains(r.lines[0], "1 damaged") || !strings.Contains(r.lines[0], "4 files are no pages") {
		t.Errorf("%d pages, warnings %q", len(r.found), r.lines)
	}
	for _, path := range []string{outside, name("0"), name("1"), name("2"), filepath.Join(folder, "notes.txt")} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was not left alone: %v", path, err)
		}
	}
	if _, err := os.Lstat(name("3")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a sparse file with a page's name is left: %v", err)
	}
	// A page that becomes a pipe or a link after the start.
	for _, replace := range []func(string) error{
		func(path string) error { return syscall.Mkfifo(path, 0o600) },
		func(path string) error { return os.Symlink(outside, path) },
	} {
		if err := errors.Join(os.Remove(r.path(own[0])), replace(r.path(own[0]))); err != nil {
			t.Fatal(err)
		}
		if f, _, err := r.open(own[0]); err == nil {
			t.Errorf("%s is opened", f.Name())
		}
		if r.served(page(ID{}, "a", 1, 0)) {
			t.Error("a pipe or a link is served")
		}
		r.reopen()
		r.chain("a", 1, 0, 1)
	}
}

func TestDirectory(t *testing.T) {
	parent := t.TempDir()
	path := func(name string) string { return filepath.Join(parent, name) }
	if err := errors.Join(os.WriteFile(path("file"), nil, 0o600), os.Mkdir(path("open"), 0o750),
		os.Mkdir(path("own"), 0o700), os.Symlink(path("own"), path("link"))); err != nil {
		t.Fatal(err)
	}
	for _, good := range []string{"own", "link", "made/by/prepare"} {
		if err := Prepare(path(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"file", "open"} {
		if err := Prepare(path(bad)); !errors.Is(err, ErrDir) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := openDir(path("own"), os.Geteuid()+1); !errors.Is(err, ErrDir) {
		t.Errorf("a directory of another user: %v", err)
	}
	if err := syscall.Mkfifo(path("own/lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: path("own"), Bytes: 1 << 20, PageTokens: 1, PageBytes: 1}
	if _, err := Open(t.Context(), o); !errors.Is(err, ErrDir) {
		t.Errorf("a pipe in place of the lock: %v", err)
	}
}

func TestOneGeneratorForADirectory(t *testing.T) {
	r := newRig(t)
	_, err := Open(t.Context(), r.o)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a second one: %v", err)
	}
	r.reopen()
}

// A disk that is full after any number of bytes turns the store off, with one line. The pages before stay.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 1)
	p := page(ids[0], "a", 1, 1)
	for n := 0; n < int(r.exactBytes("a")); n += 5 {
		left := n
		r.write = func(f *os.File, part []byte) (int, error) {
			written, err := f.Write(part[:min(left, len(part))])
			if left -= written; written < len(part) {
				err = errors.Join(err, syscall.ENOSPC)
			}
			return written, err
		}
		for range 2 {
			if _, _, err := r.Write(p, dataOf(p)); !errors.Is(err, ErrOff) {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			r.write = (*os.File).Write // it stays off, though there is room again
		}
		if err := r.turnOff(syscall.EIO); !errors.Is(err, ErrOff) { // by a goroutine that failed at the same time
			t.Error(err)
		}
		if err := r.Read(ids[0], make([]byte, testBytes)); !errors.Is(err, ErrOff) {
			t.Errorf("a read: %v", err)
		}
		if len(r.lines) != 1 || !strings.Contains(r.lines[0], "no space left") {
			t.Errorf("%q", r.lines)
		}
		if files, _ := os.ReadDir(filepath.Join(r.o.Dir, newFolder)); len(files) != 0 {
			t.Error("the unfinished file is left")
		}
		r.reopen()
		if len(r.found) != 1 || !r.served(r.found[0]) {
			t.Fatalf("after %d bytes: %d pages after a restart", n, len(r.found))
		}
	}
}

// A broken disk turns the store off; so does a directory that is gone.
func TestBrokenDisk(t *testing.T) {
	r := newRig(t)
	ids := r.chain("a", 1, 0, 1)
	r.reader = func(*os.File) io.ReaderAt { return broken{} }
	for range 2 {
		if err := r.Read(ids[0], make([]byte, testBytes)); !errors.Is(err, ErrOff) || len(r.lines) != 1 {
			t.Errorf("%v, %q", err, r.lines)
		}
	}
	r.reopen()
	if len(r.found) != 1 {
		t.Error("the page is lost")
	}
	if err := os.RemoveAll(r.o.Dir); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(ids[0], make([]byte, testBytes)); !errors.Is(err, ErrGone) {
		t.Errorf("a page that is gone: %v", err)
	}
	p := page(ID{}, "a", 1, 5)
	if _, _, err := r.Write(p, dataOf(p)); !errors.Is(err, ErrOff) || len(r.lines) != 1 {
		t.Errorf("%v, %q", err, r.lines)
	}
}

// A page that is dropped while it is written leaves no file, and may be written again meanwhile.
func TestDropWhileWriting(t *testing.T) {
	r := newRig(t)
	p := page(ID{}, "a", 1, 0)
	again := true
	r.write = func(f *os.File, part []byte) (int, error) {
		if again {
			again = false
			if r.Drop(1, p.Scope) != 1 || r.served(p) {
				t.Error("a page that is being written is not counted, or is served")
			}
			r.put(p)
			r.Delete(r.ID(p))
		}
		return f.Write(part)
	}
	if err := write(r, p, dataOf(p)); !errors.Is(err, ErrGone) {
		t.Errorf("a page that was dropped: %v", err)
	}
	files, _ := os.ReadDir(filepath.Join(r.o.Dir, newFolder))
	if r.reopen(); len(r.found) != 0 || len(files) != 0 {
		t.Errorf("%d pages and %d unfinished files are left", len(r.found), len(files))
	}
}

// broken is a file on a broken disk.
type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

// FuzzFile reads any bytes as a page's file: all that is served is exactly a file that Write makes.
func FuzzFile(f *testing.F) {
	s := &Store{Options: Options{Identity: [32]byte{1}, PageTokens: 2, PageBytes: 3}}
	p := Page{Scope: "ab", User: 7, Tokens: []int32{1, 2}}
	p.ID = s.ID(p)
	whole := wholeOf(s, p, []byte("xyz"))
	f.Add(whole)
	f.Add(whole[:fixed])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		data := make([]byte, 3)
		if s.check(p.ID, bytes.NewReader(text), int64(len(text)), data) != nil {
			return
		}
		q, err := s.parseHead(p.ID, text, int64(len(text)))
		if err != nil || q.ID != p.ID || !bytes.Equal(text, wholeOf(s, q, data)) {
			t.Errorf("%q is served", text)
		}
	})
}

// wholeOf returns the file of a page.
func wholeOf(s *Store, p Page, data []byte) []byte {
	text := append(s.head(p), data...)
	return binary.LittleEndian.AppendUint64(text, xxhash.Sum64(text))
}
