// Package files opens untrusted files: regular files only, and without waiting. A named pipe
// or a device in place of a model's config could block the start for ever, or never end.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotRegular marks a file that is not regular. The error's text names its kind.
var ErrNotRegular = errors.New("not a regular file")

// Dir is a directory as a file system, like [os.DirFS], that uses [Open]. Symbolic links are
// followed, as a Hugging Face cache needs.
type Dir string

// Open opens a file of the directory. Errors are those of the function [Open], and
// [fs.ErrInvalid] for a name that leads out of the directory.
func (d Dir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, err // a nil *os.File is not a nil fs.File
	}
	return f, nil
}

// Open opens a regular file for reading. For other kinds it returns [ErrNotRegular] without
// opening them, since opening some devices changes them. If the file is replaced between the
// check and the opening, O_NONBLOCK keeps the opening from waiting for a pipe's writer.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	afterCheck(path)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns the content of a file of at most limit bytes. A longer file is an error.
func Read(files fs.FS, name string, limit int) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(text) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return text, err
}

// afterCheck is called between the check and the opening; a test replaces the file there.
var afterCheck = func(string) {}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, %w", path, kind(info.Mode()), ErrNotRegular)
}

// kind names a file's kind, as in "is a named pipe".
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "special"
}
