// Package files opens files that somebody else may have put there: regular files
// alone, and without ever waiting. A named pipe or a device where a model's config
// should be would block the start for ever, or never end.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotRegular marks a file that is not a regular one. The error says which kind it is.
var ErrNotRegular = errors.New("not a regular file")

// Dir is a directory as a file system, like os.DirFS. Its Open is that of this
// package, so symbolic links are followed, as a Hugging Face cache needs.
type Dir string

// Open opens a file of the directory. Errors: those of the function Open, and
// fs.ErrInvalid for a name that leads out of the directory.
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

// Open opens a regular file for reading. Other kinds are ErrNotRegular and are not
// even opened, because opening some devices changes them. Where the file is replaced
// between the look and the opening, O_NONBLOCK keeps that from waiting for a writer.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	looked(path)
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

// looked is told of each file between the look and the opening; a test replaces the file then.
var looked = func(string) {}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, %w", path, kind(info.Mode()), ErrNotRegular)
}

// kind names what a file is, as in "is a named pipe".
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
