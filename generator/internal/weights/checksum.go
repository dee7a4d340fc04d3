package weights

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"
)

// FileState is a file of a checkpoint at one time.
type FileState struct {
	Name     string
	Size     int64
	Modified int64             // mtime, nanoseconds since 1970; 0 of a file that is not mapped
	Header   [sha256.Size]byte // digest of the header, which lists the tensors
	changed  int64             // ctime: a writer cannot set it back, as it can mtime
	inode    uint64
}

// State returns the present state of all files. Errors: [ErrChanged] for a file that lost its header.
func (c *Checkpoint) State() (all []FileState, err error) {
	for _, f := range c.files {
		s := FileState{Name: f.name, Size: int64(len(f.data))}
		err := Guard(func() error { s.Header = sha256.Sum256(f.header); return nil })
		info := f.opened
		if err == nil && f.mapped != nil {
			info, err = f.mapped.Stat()
		}
		if err != nil {
			return nil, fmt.Errorf("weights: %s: %w", f.name, err)
		}
		s.stamp(f.mapped != nil, info)
		all = append(all, s)
	}
	return all, nil
}

func (s *FileState) stamp(mapped bool, info fs.FileInfo) {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && mapped {
		s.Size, s.Modified, s.changed, s.inode = info.Size(), info.ModTime().UnixNano(), sys.Ctim.Nano(), sys.Ino
	}
}

// Checksum returns a digest of all bytes of all files. It reads at most perSecond bytes a second, and through the
// descriptors: a file that is cut meanwhile gives an error, where a mapping would give a fault. was is the state of
// the files when they were read; if they have changed since, also with their mtime set back, the error is
// [ErrChanged]. The end of ctx ends it.
func (c *Checkpoint) Checksum(ctx context.Context, was []FileState, perSecond int64) (
	sum [sha256.Size]byte, err error) {
	r := pacedReader{ctx: ctx, perSecond: perSecond, began: time.Now(), part: make([]byte, 1<<20)}
	total := sha256.New()
	for _, f := range c.files {
		_, _ = total.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(f.data))))
		if err := r.read(f, total); err != nil {
			return sum, fmt.Errorf("weights: %s: %w", f.name, err)
		}
	}
	return [sha256.Size]byte(total.Sum(nil)), c.same(was)
}

// same returns [ErrChanged] if the files have another state.
func (c *Checkpoint) same(was []FileState) error {
	now, err := c.State()
	if err == nil && !slices.Equal(now, was) {
		err = fmt.Errorf("weights: %s: %w", c.name(), ErrChanged)
	}
	return err
}

// pacedReader reads files at a limited rate.
type pacedReader struct {
	ctx       context.Context
	perSecond int64
	began     time.Time
	done      int64 // bytes
	part      []byte
}

func (r *pacedReader) read(f *file, into hash.Hash) error {
	for at := 0; at < len(f.data); {
		part := r.part[:min(len(r.part), len(f.data)-at)]
		if f.mapped == nil {
			copy(part, f.data[at:])
		} else if n, err := f.mapped.ReadAt(part, int64(at)); n < len(part) {
			if err == io.EOF {
				err = ErrChanged
			}
			return err
		}
		_, _ = into.Write(part) // never fails
		at += len(part)
		if err := r.wait(len(part)); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until n more bytes are due.
func (r *pacedReader) wait(n int) error {
	r.done += int64(n)
	due := r.began.Add(time.Duration(float64(r.done) / float64(r.perSecond) * float64(time.Second)))
	select {
	case <-time.After(time.Until(due)):
		return r.ctx.Err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}
