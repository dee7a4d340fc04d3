// Package store keeps KV pages of prompts in files, so that they outlive a restart.
//
// A page has a digest for its name: SHA-256 over its parent's digest and its tokens, and for the first page of a
// prompt over the digest of identity and scope in place of the parent. So a file is found only by the model, device
// and version that wrote it (the identity), for the same scope, after the same tokens.
//
// The directory belongs to this process's user with mode 0700, and that user and root are trusted: they could write
// any page. Nothing else about the files is. A file may be cut, damaged, of another version, or no file of Reel's at
// all; the name is compared with the contents when the directory is opened, and a checksum over the whole file on
// each read. Files are written under another name and renamed, so a process that is killed leaves whole pages only.
// Nothing is synced: after a loss of power some pages may be damaged, and are deleted when they are found.
//
// file.go is the form of a file, dir.go the directory, scan.go opens it, index.go counts pages and chooses those
// that give way. changes.go changes files without holding up those who only ask.
package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Errors of a [Store] and of [Open]. For all of them the pages concerned are merely not cached.
var (
	// ErrDir means that the directory is not one that this process's user alone can use.
	ErrDir = errors.New("not a private directory")
	// ErrLocked means that another generator uses the directory.
	ErrLocked = errors.New("in use by another generator")
	// ErrOff means that the store was turned off after an error of the file system.
	ErrOff = errors.New("the cache directory is not used any more")
	// ErrGone means that there is no such page, or no longer.
	ErrGone = errors.New("no such page")
	// ErrDamaged means that the page's file was damaged. It is deleted.
	ErrDamaged = errors.New("damaged page")
	// ErrFull means that the bound leaves no room for the page: all others are in front of it.
	ErrFull = errors.New("no room within the bound")
	// ErrShape means that a page has another number of tokens or bytes than the store's pages, or too long a scope.
	ErrShape = errors.New("not a page of this store")
)

// ID is the digest of a page and of all before it. The zero ID stands for a scope's root.
type ID [sha256.Size]byte

// String returns the ID in hexadecimal digits, the name of its file.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Page describes a page without its keys and values.
type Page struct {
	ID     ID // as [Store.ID] returns it
	Parent ID // of the page before it; zero for the first page of a prompt
	Scope  string
	User   uint64 // whose share the page counts to
	Tokens []int32
}

// Options describe a store.
type Options struct {
	Dir string
	// Bytes bounds the files' sizes, each rounded up to 4 KiB. Names and folders take a little more.
	Bytes int64
	// Identity is a digest of everything but the tokens that keys and values depend on.
	Identity   [sha256.Size]byte
	PageTokens int
	PageBytes  int64
	Warn       func(string) // receives a line for the log, from any goroutine
}

// Store is an open directory of pages. Goroutines may share it. Its methods wait for the disk, so the engine's
// thread must not call them, except Longest, Usage, UsageOf and Counts.
type Store struct {
	Options
	root *os.Root
	lock *os.File

	disk sync.Mutex // held during changes of files, and taken before mu

	mu       sync.Mutex // never held during a call of the file system
	index    index
	touched  []*entry // whose files have an older time
	written  uint64   // names temporary files
	off      bool
	reported bool // a damaged page has been reported
	counts   counters

	write  func(f *os.File, part []byte) (int, error) // a test makes it fail
	reader func(f *os.File) io.ReaderAt               // likewise
	hang   func()                                     // called before changes of files, in tests; nil: nothing is
}

// ID returns the digest of a page after its parent.
func (s *Store) ID(p Page) ID {
	parent := p.Parent
	if parent == (ID{}) {
		parent = s.rootOf(p.Scope)
	}
	return digest(parent, p.Tokens)
}

// rootOf returns the digest of a scope's root.
func (s *Store) rootOf(scope string) ID {
	return sha256.Sum256(append(s.Identity[:], scope...))
}

func digest(parent ID, tokens []int32) ID {
	text := make([]byte, 0, len(parent)+4*len(tokens))
	text = append(text, parent[:]...)
	for _, t := range tokens {
		text = binary.LittleEndian.AppendUint32(text, uint32(t))
	}
	return sha256.Sum256(text)
}

// Longest returns the longest beginning of a prompt that is stored, page by page, and counts its pages as used. It
// waits neither for a page that is being written nor for the disk.
func (s *Store) Longest(scope string, prompt []int32) (ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil
	}
	var last *entry
	used := now()
	for parent := s.rootOf(scope); len(prompt) >= s.PageTokens; prompt = prompt[s.PageTokens:] {
		id := digest(parent, prompt[:s.PageTokens])
		e := s.index.entries[id]
		if e == nil || e.writing || e.owner == s.index.foreign {
			break
		}
		e.used = used
		ids, parent, last = append(ids, id), id, e
	}
	if last != nil {
		s.touch(last)
	}
	return ids
}

// Write stores a page and returns its ID, and those of the pages that gave way to it. A page that is stored
// already only counts as used again. Write a page's parent first: without it no prompt finds the page.
// Errors: [ErrFull], [ErrShape], [ErrOff].
func (s *Store) Write(p Page, data []byte) (id ID, gone []ID, err error) {
	if len(p.Tokens) != s.PageTokens || int64(len(data)) != s.PageBytes || len(p.Scope) > maxScope {
		return id, nil, fmt.Errorf("%w: %d tokens, %d bytes, a scope of %d bytes", ErrShape, len(p.Tokens), len(data),
			len(p.Scope))
	}
	p.ID = s.ID(p)
	e, gone, err := s.reserve(p)
	defer s.keepTimes()
	if err != nil || e == nil {
		return p.ID, gone, err
	}
	if err := s.writeFile(p, data, e.temporary); err != nil {
		s.give(e)
		return p.ID, gone, s.turnOff(err)
	}
	return p.ID, gone, s.publish(e)
}

// reserve makes room for a page. It returns nil without an error if the page is stored or being written.
func (s *Store) reserve(p Page) (e *entry, gone []ID, err error) {
	s.change(func() (files []string) {
		if s.off {
			err = ErrOff
			return nil
		}
		if e := s.index.entries[p.ID]; e != nil && e.owner != s.index.foreign {
			s.touch(e)
			return nil
		}
		files = s.forget(p.ID)
		s.written++
		e = &entry{id: p.ID, parent: p.Parent, scope: p.Scope, size: s.fileBytes(p.Scope), used: now(), writing: true,
			temporary: newFolder + "/" + strconv.FormatUint(s.written, 10)}
		s.index.add(e, p.User)
		for s.index.over(s.Bytes) {
			victim := s.index.victim()
			if victim == nil {
				s.index.remove(e)
				e, err = nil, ErrFull
				return files
			}
			gone = append(gone, victim.id)
			files = append(files, s.forget(victim.id)...)
		}
		return files
	})
	return e, gone, err
}

// publish gives the written file its name, unless the page was deleted meanwhile.
func (s *Store) publish(e *entry) error {
	s.disk.Lock() // nobody deletes the page until it has its name
	defer s.disk.Unlock()
	s.mu.Lock()
	deleted := s.index.entries[e.id] != e
	s.mu.Unlock()
	s.awaitDisk()
	if deleted {
		_ = s.root.Remove(e.temporary)
		return ErrGone
	}
	err := s.root.Rename(e.temporary, pathOf(e.id))
	s.mu.Lock()
	defer s.unlock()
	if err != nil {
		s.index.remove(e)
		return s.turnOffLocked(err)
	}
	e.writing = false
	s.index.settle(e)
	s.counts.written.Add(1)
	return nil
}

// give takes back a reservation.
func (s *Store) give(e *entry) {
	s.change(func() []string {
		if s.index.entries[e.id] == e {
			s.index.remove(e)
		}
		return []string{e.temporary}
	})
}

// Read reads a page's keys and values into data, of PageBytes bytes, and counts the page as used. After an error
// data holds anything. Errors: [ErrGone], [ErrDamaged], [ErrShape], [ErrOff].
func (s *Store) Read(id ID, data []byte) error {
	if int64(len(data)) != s.PageBytes {
		return fmt.Errorf("%w: %d bytes for a page of %d", ErrShape, len(data), s.PageBytes)
	}
	s.mu.Lock()
	e, off := s.index.entries[id], s.off
	found := e != nil && !e.writing && e.owner != s.index.foreign
	s.mu.Unlock()
	switch {
	case off:
		return ErrOff
	case !found:
		return ErrGone
	}
	err := s.readFile(id, data)
	switch {
	case err == nil:
		s.counts.read.Add(1)
		s.noteRead(e)
	case errors.Is(err, fs.ErrNotExist):
		s.Delete(id)
		return ErrGone
	case errors.Is(err, ErrDamaged):
		s.counts.errors.Add(1)
		s.Delete(id)
		s.reportDamage()
	default:
		return s.turnOff(err)
	}
	return err
}

// noteRead counts a page as used.
func (s *Store) noteRead(e *entry) {
	defer s.keepTimes()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index.entries[e.id] == e {
		s.touch(e)
	}
}

// touch counts a page as used, for this process and, after keepTimes, for the next. s.mu is held.
func (s *Store) touch(e *entry) {
	e.used = now()
	s.index.settle(e)
	if !e.writing && !e.touched {
		e.touched = true
		s.touched = append(s.touched, e)
	}
}

// now returns the time in nanoseconds since 1970, as files keep it.
func now() int64 { return time.Now().UnixNano() }

// Delete removes a page. Those after it stay and are found again once it is written again.
func (s *Store) Delete(id ID) { s.change(func() []string { return s.forget(id) }) }

// Drop removes all pages of a user in some scopes, those of other identities too, and returns their number.
func (s *Store) Drop(user uint64, scopes ...string) int {
	return s.drop(func(e *entry) bool { return e.user == user && slices.Contains(scopes, e.scope) })
}

// DropAll removes all pages of all users and identities, and returns their number.
func (s *Store) DropAll() int { return s.drop(func(*entry) bool { return true }) }

func (s *Store) drop(which func(*entry) bool) (dropped int) {
	s.change(func() (files []string) {
		for id, e := range s.index.entries {
			if which(e) {
				files = append(files, s.forget(id)...)
				dropped++
			}
		}
		return files
	})
	return dropped
}

// forget removes a page from the index and returns its file, if there is one. s.mu is held.
func (s *Store) forget(id ID) (files []string) {
	e := s.index.entries[id]
	if e == nil {
		return nil
	}
	s.index.remove(e)
	if e.writing { // its writer removes the file
		return nil
	}
	return []string{pathOf(id)}
}

// Usage returns the number of pages that can be read, and the bytes of all files, those of other identities too.
func (s *Store) Usage() (pages int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.pages(), s.index.bytes
}

// UsageOf returns the number of pages of a scope that can be read.
func (s *Store) UsageOf(scope string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.scopes[scope]
}

// Close lets another process use the directory. No other call may run or follow.
func (s *Store) Close() error {
	s.keepTimes()
	return errors.Join(s.lock.Close(), s.root.Close())
}

// turnOff ends all use of the directory after an error of the file system, such as a full or a broken disk. It
// returns the error with [ErrOff].
func (s *Store) turnOff(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turnOffLocked(err)
}

func (s *Store) turnOffLocked(err error) error {
	s.counts.errors.Add(1)
	if !s.off {
		s.off = true
		s.counts.off.Store(true)
		s.Warn(fmt.Sprintf("%s: %v: mend it and restart the generator: %v", s.Dir, ErrOff, err))
	}
	return fmt.Errorf("%w: %w", ErrOff, err)
}

func (s *Store) reportDamage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reported {
		s.reported = true
		s.Warn(fmt.Sprintf("%s: a page was damaged and is deleted; further ones are not reported", s.Dir))
	}
}
