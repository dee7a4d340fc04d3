package weights

import (
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"syscall"
)

// What is sampled of a checkpoint: the page of each file's header, its last page,
// one page of each tensor, and one every sampleStride bytes; of all files together
// at most maxSamples, then fewer tensors have one.
const (
	samplePage   = 4096    // bytes
	sampleStride = 4 << 20 // bytes
	maxSamples   = 4096    // 16 MiB
)

// samples are the checksums of some pages of a mapped file, and when it had them.
type samples struct {
	*file
	seed    maphash.Seed
	offsets []int // of the pages
	sums    []uint64
	known   stamp // of the file with these sums
	again   bool  // known is so new that another write may have the same
}

// stamp is what a look at an open file tells of its content.
type stamp struct {
	size             int64
	modified, status int64 // mtime and ctime, in nanoseconds; a writer can set back mtime alone
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.status = sys.Ctim.Nano()
	}
	return s
}

// written reports whether a file was written to, or touched, between two looks. A
// rename changes ctime alone.
func (s stamp) written(later stamp) bool {
	return s.size != later.size || s.modified != later.modified
}

// sampleOffsets chooses at most n pages of a file.
func sampleOffsets(f *file, n int) []int {
	all := append([]int{0, len(f.data) - 1}, f.middles...)
	for at := sampleStride; at < len(f.data); at += sampleStride {
		all = append(all, at)
	}
	for i := range all {
		all[i] -= all[i] % samplePage
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return thin(all, n)
}

// thin leaves at most n of a list, at least two, evenly, the first and the last included.
func thin(list []int, n int) []int {
	if n = max(2, n); len(list) <= n {
		return list
	}
	for i := range n {
		list[i] = list[i*(len(list)-1)/(n-1)]
	}
	return list[:n]
}

// take takes the sums. It is ErrChanged where the file was written to since Open.
func (s *samples) take() error {
	s.sums = make([]uint64, len(s.offsets))
	err := s.each(func(i int, sum uint64) error { s.sums[i] = sum; return nil })
	if err == nil {
		err = s.unchanged()
	}
	if err != nil {
		return fmt.Errorf("weights: %s: %w", s.name, err)
	}
	info, err := s.mapped.Stat()
	if err == nil {
		s.known = stampOf(info)
	}
	return err
}

// each calls fn with the checksum of each sampled page as it is now. A page that is
// gone, since the file became shorter, is ErrChanged.
func (s *samples) each(fn func(i int, sum uint64) error) error {
	return Guard(func() error {
		var page [samplePage]byte
		for i, at := range s.offsets {
			n := copy(page[:], s.data[at:])
			if err := fn(i, maphash.Bytes(s.seed, page[:n])); err != nil {
				return err
			}
		}
		return nil
	})
}

// look compares the file with what it was. Sums are compared where size or times
// have changed, and where force is set. touched says that it was written to or
// touched and the sampled pages are as they were. The error is ErrChanged.
func (s *samples) look(force bool) (touched bool, err error) {
	info, err := s.mapped.Stat()
	if err != nil {
		return false, nil // a file system that does not answer says nothing of a change
	}
	now, before := stampOf(info), s.known
	if now == before && !s.again && !force {
		return false, nil
	}
	if now.size < int64(len(s.data)) {
		return false, fmt.Errorf("weights: %s: %w: of %d bytes %d are left", s.name, ErrChanged, len(s.data), now.size)
	}
	if err := s.compare(); err != nil {
		return false, err
	}
	// The kernel's clock ticks every few milliseconds: what is written in the tick
	// of this look changes no time, so the next look compares again.
	s.known, s.again = now, now != before
	return before.written(now), nil
}

// compare is ErrChanged where a sampled page is not what it was.
func (s *samples) compare() error {
	err := s.each(func(i int, sum uint64) error {
		if sum != s.sums[i] {
			return fmt.Errorf("%w: its page at byte %d is not what it was", ErrChanged, s.offsets[i])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("weights: %s: %w", s.name, err)
	}
	return nil
}
