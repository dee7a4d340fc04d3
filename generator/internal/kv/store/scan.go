package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxHead is the most bytes before a page's keys and values.
const maxHead = fixed + maxScope + 4*maxPageTokens

// Open opens a directory. It reads the head of each file, so it takes a while; the end of ctx ends it. Files of other
// identities and versions count to the bound and are the first to give way. Damaged files are deleted. Warn gets one
// line about both. Errors: [ErrDir], [ErrLocked], [ErrShape], [ErrFull] for a bound below a page, or the system's.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{Options: o, index: newIndex(), write: (*os.File).Write,
		reader: func(f *os.File) io.ReaderAt { return f }}
	if o.PageTokens < 1 || o.PageTokens > maxPageTokens || o.PageBytes < 1 {
		return nil, fmt.Errorf("%w: pages of %d tokens and %d bytes", ErrShape, o.PageTokens, o.PageBytes)
	}
	if least := s.fileBytes(strings.Repeat(".", maxScope)); o.Bytes < least {
		return nil, fmt.Errorf("%w: a page takes %d bytes, the bound is %d", ErrFull, least, o.Bytes)
	}
	var err error
	if s.root, err = openDir(o.Dir, os.Geteuid()); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(s.root, o.Dir); err != nil {
		return nil, errors.Join(err, s.root.Close())
	}
	if err := s.scan(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.note()
	return s, nil
}

// counts are the files that a scan does not serve, by the reason.
type counts struct{ foreign, damaged, strange int }

// scan fills the index.
func (s *Store) scan(ctx context.Context) error {
	if err := s.sweep(); err != nil {
		return err
	}
	var n counts
	folders, err := s.list(pages)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := s.scanFolder(ctx, folder.Name(), &n); err != nil {
			return err
		}
	}
	s.report(n)
	s.change(func() (files []string) {
		for s.index.over(s.Bytes) {
			files = append(files, s.forget(s.index.victim().id)...)
		}
		return files
	})
	return nil
}

func (s *Store) scanFolder(ctx context.Context, folder string, n *counts) error {
	files, err := s.list(pages + "/" + folder)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := cmp.Or(ctx.Err(), s.scanFile(folder, file, n)); err != nil {
			return err
		}
	}
	return nil
}

// list returns the entries of a folder, none if there is no such folder. A link leads nowhere.
func (s *Store) list(folder string) ([]fs.DirEntry, error) {
	info, err := s.root.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := s.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// sweep removes the files that a process before this one did not finish.
func (s *Store) sweep() error {
	if err := s.root.MkdirAll(newFolder, dirMode); err != nil {
		return err
	}
	unfinished, err := s.list(newFolder)
	for _, f := range unfinished {
		if f.Type().IsRegular() {
			err = errors.Join(err, s.root.Remove(newFolder+"/"+f.Name()))
		}
	}
	return err
}

// scanFile adds a file to the index, or counts why not.
func (s *Store) scanFile(folder string, file fs.DirEntry, n *counts) error {
	id, ok := parseName(file.Name())
	if !ok || !file.Type().IsRegular() || folder != file.Name()[:2] {
		n.strange++
		return nil
	}
	p, info, err := s.scanHead(id)
	e := &entry{id: id, parent: p.Parent, user: p.User, scope: p.Scope}
	switch {
	case err == nil:
		e.size, e.used = s.fileBytes(p.Scope), info.ModTime().UnixNano()
		s.index.add(e, p.User)
	case errors.Is(err, errForeign):
		e.size, e.used = allocated(info), info.ModTime().UnixNano()
		s.index.addTo(s.index.foreign, e)
		n.foreign++
	case errors.Is(err, ErrDamaged):
		n.damaged++
		_ = s.root.Remove(pathOf(id)) // if it fails, the next start finds it again
	default:
		return err
	}
	return nil
}

// scanHead reads the head of a file.
func (s *Store) scanHead(id ID) (p Page, info fs.FileInfo, err error) {
	f, _, err := s.open(id)
	if err != nil {
		return p, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return p, nil, err
	}
	head := make([]byte, headBytes("", s.PageTokens)+maxScope)
	size, err := s.reader(f).ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return p, nil, err
	}
	p, err = s.parseHead(id, head[:size], info.Size())
	return p, info, err
}

// allocated returns the bytes of a file on the disk. A sparse file has fewer than its size.
func allocated(info fs.FileInfo) int64 { return roundUp(info.Sys().(*syscall.Stat_t).Blocks * 512) }

// parseName returns the ID that a file is named after.
func parseName(name string) (id ID, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(digits))
	return id, err == nil && id.String() == digits
}

// report warns about the files that are not served.
func (s *Store) report(n counts) {
	var parts []string
	add := func(n int, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(n.foreign, "%d pages of another model, device or version are not used")
	add(n.damaged, "%d damaged pages are deleted")
	add(n.strange, "%d files are no pages and left alone")
	if parts != nil {
		s.Warn(s.Dir + ": " + strings.Join(parts, "; "))
	}
}
