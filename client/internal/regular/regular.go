// Package regular opens files that another program or user may have put in place of the
// expected one.
package regular

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file with flags as in [os.OpenFile]; a new file has mode 0600. It does
// not block on other kinds of files, such as a named pipe: those are [fs.ErrInvalid].
func Open(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file: %w", path, fs.ErrInvalid)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
