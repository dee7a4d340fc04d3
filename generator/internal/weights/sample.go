package weights

import (
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"syscall"
)

// A checkpoint is sampled by pages: the first and the last page of each file, one
// page of each tensor, and one every sampleStride bytes. All files together have at
// most maxSamples pages; a checkpoint with more is thinned evenly.
const (
	samplePage   = 4096    // bytes
	sampleStride = 4 << 20 // bytes
	maxSamples   = 4096    // 16 MiB
)

// samples holds the checksums of some pages of a mapped file, and the stamp of the
// file at the time.
type samples struct {
	*file
	seed    maphash.Seed
	offsets []int // of the pages
	sums    []uint64
	known   stamp // stamp of the file when the sums were right
	again   bool  // compare once more: a later write may have the same stamp
}

// stamp is the size and the times of an open file.
type stamp struct {
	size             int64
	modified, status int64 // mtime and ctime in nanoseconds; a writer can set back only mtime
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.status = sys.Ctim.Nano()
	}
	return s
}

// written reports whether a file was written to or touched between two stamps. A
// rename changes only ctime.
func (s stamp) written(later stamp) bool {
	return s.size != later.size || s.modified != later.modified
}

// sampleOffsets chooses the pages of a file to sample, at most n, and returns their
// offsets in increasing order.
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

// thin keeps at most n elements of a list, and at least two: the first, the last, and
// elements spread evenly between them.
func thin(list []int, n int) []int {
	if n = max(2, n); len(list) <= n {
		return list
	}
	for i := range n {
		list[i] = list[i*(len(list)-1)/(n-1)]
	}
	return list[:n]
}

// record computes and keeps the sums. It returns ErrChanged if the file was written to since Open.
func (s *samples) record() error {
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

// each calls fn with the present checksum of each sampled page. It returns ErrChanged
// if the file became shorter and lost a page.
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

// look compares the file with its known stamp, and the sums as well if the stamp
// differs or force is set. touched reports that the file was written to or touched
// while the sampled pages stayed the same. The error is ErrChanged.
func (s *samples) look(force bool) (touched bool, err error) {
	info, err := s.mapped.Stat()
	if err != nil {
		return false, nil // a failed stat is no evidence of a change
	}
	now, before := stampOf(info), s.known
	if now == before && !s.again && !force {
		return false, nil
	}
	if now.size < int64(len(s.data)) {
		return false, fmt.Errorf("weights: %s: %w: it shrank from %d to %d bytes",
			s.name, ErrChanged, len(s.data), now.size)
	}
	if err := s.compare(); err != nil {
		return false, err
	}
	// File times have the resolution of the kernel's tick, a few milliseconds. A write
	// in the same tick as this look leaves the times as they are, so the next look
	// compares again.
	s.known, s.again = now, now != before
	return before.written(now), nil
}

// compare returns ErrChanged if the checksum of a sampled page differs.
func (s *samples) compare() error {
	err := s.each(func(i int, sum uint64) error {
		if sum != s.sums[i] {
			return fmt.Errorf("%w: the page at byte %d differs", ErrChanged, s.offsets[i])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("weights: %s: %w", s.name, err)
	}
	return nil
}
