package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// output is the file that is written, beside the one that it will be.
type output struct {
	file        *os.File
	path, final string
	force       bool
	size        int64
}

// create makes the file final.new, of size bytes, for which it takes room on the disk. An existing final is
// [ErrExists] unless force is set and it is a regular file.
func create(final string, force bool, size int64) (*output, error) {
	info, err := os.Lstat(final)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s %w and is no regular file: give another name", final, ErrExists)
	case err == nil && !force:
		return nil, fmt.Errorf("%s %w: give another name, or replace it with --force", final, ErrExists)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	o := &output{path: final + ".new", final: final, force: force, size: size}
	o.file, err = os.OpenFile(o.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s %w: if no other conversion writes it, one was killed: remove it", o.path, ErrExists)
	}
	if err != nil {
		return nil, err
	}
	if err := o.reserve(); err != nil {
		o.remove()
		return nil, o.explain(err)
	}
	return o, nil
}

// reserve gives the file its size. Where the file system can, it takes the room now, so that a full disk shows before
// the work.
func (o *output) reserve() error {
	err := unix.Fallocate(int(o.file.Fd()), 0, 0, o.size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = o.file.Truncate(o.size)
	}
	if err != nil {
		return &fs.PathError{Op: "allocate", Path: o.path, Err: err}
	}
	return nil
}

// explain adds the next step to the error of a full disk.
func (o *output) explain(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.EFBIG) {
		return err
	}
	return fmt.Errorf("%w: the file needs %s: free some space in %s, or write it to another disk", err,
		bytesText(o.size), filepath.Dir(o.path))
}

// finish writes the file to the disk and gives it its name.
func (o *output) finish() error {
	err := o.file.Sync()
	if err == nil {
		err = o.rename()
	}
	if err != nil {
		return o.explain(err)
	}
	dir, err := os.Open(filepath.Dir(o.final))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// rename replaces the final file with force only.
func (o *output) rename() error {
	if o.force {
		return os.Rename(o.path, o.final)
	}
	err := unix.Renameat2(unix.AT_FDCWD, o.path, unix.AT_FDCWD, o.final, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s %w now: give another name, or replace it with --force", o.final, ErrExists)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // a file system without the flag
		return os.Rename(o.path, o.final)
	case err != nil:
		return &os.LinkError{Op: "rename", Old: o.path, New: o.final, Err: err}
	}
	return nil
}

// remove closes the file, and removes it unless it has its final name.
func (o *output) remove() {
	mine, err1 := o.file.Stat()
	there, err2 := os.Lstat(o.path)
	if err1 == nil && err2 == nil && os.SameFile(mine, there) {
		_ = os.Remove(o.path)
	}
	_ = o.file.Close()
}
