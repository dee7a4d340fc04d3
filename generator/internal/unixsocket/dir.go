package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// prepareDir makes dir with dirMode, or with privateMode if dir is private, the user's
// directory under /tmp. An existing directory keeps its mode. A private directory of another
// user is refused: its owner could replace the socket.
func prepareDir(dir, private string) error {
	if dir != private {
		return makeDir(dir, dirMode)
	}
	if err := makeDir(dir, privateMode); err != nil {
		return err
	}
	return checkOwned(dir, os.Getuid())
}

func checkOwned(dir string, uid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is a %s, not a directory: choose another path", ErrForeignDir, dir, kind(info))
	}
	if owner := ownerOf(info); owner != uid {
		return fmt.Errorf("%w: %s belongs to user %d: choose another path", ErrForeignDir, dir, owner)
	}
	return nil
}

// ownerOf returns the uid of a file's owner, or -1 if it is not known.
func ownerOf(info fs.FileInfo) int {
	if info == nil {
		return -1
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// makeDir makes dir and its missing parents. It sets the mode again, since the umask narrows
// it.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := makeDir(filepath.Dir(dir), mode); err != nil {
		return err
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
