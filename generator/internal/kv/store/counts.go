package store

import "sync/atomic"

// Counts are what a store has, and what it did since it was opened.
type Counts struct {
	Pages   int   // that can be read
	Bytes   int64 // of all files, those of other identities too
	Read    uint64
	Written uint64
	Errors  uint64 // damaged pages that were read, and errors of the file system
	Off     bool   // the store is not used any more after one
}

// counters are Counts that are read without the store's locks.
type counters struct {
	pages, bytes          atomic.Int64
	read, written, errors atomic.Uint64
	off                   atomic.Bool
}

// Counts returns the store's counts. It never waits for the disk.
func (s *Store) Counts() Counts {
	c := &s.counts
	return Counts{Pages: int(c.pages.Load()), Bytes: c.bytes.Load(), Read: c.read.Load(), Written: c.written.Load(),
		Errors: c.errors.Load(), Off: c.off.Load()}
}

// unlock ends a change of the index.
func (s *Store) unlock() {
	s.note()
	s.mu.Unlock()
}

// note keeps the sizes for Counts.
func (s *Store) note() {
	s.counts.pages.Store(int64(s.index.pages()))
	s.counts.bytes.Store(s.index.bytes)
}
