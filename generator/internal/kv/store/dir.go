package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A store's directory has a file that is locked, a folder of files that are being written, and the pages in 256
// folders by the first digits of their names. Everything else in it is left alone.
const (
	lockName  = "lock"
	newFolder = "new"
	pages     = "pages"
	suffix    = ".page"
	dirMode   = 0o700
)

func folderOf(id ID) string { return pages + "/" + id.String()[:2] }
func pathOf(id ID) string   { return folderOf(id) + "/" + id.String() + suffix }

// Prepare makes the directory, with its parents, if it is not there, and checks that this process's user owns it and
// nobody else can enter it. Errors: [ErrDir] or the system's.
func Prepare(dir string) error {
	root, err := openDir(dir, os.Geteuid())
	if err != nil {
		return err
	}
	return root.Close()
}

// openDir opens the directory once, so that a link that is changed later leads nowhere else.
func openDir(dir string, uid int) (*os.Root, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a directory: choose another path", ErrDir, dir)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = checkDir(dir, info, uid)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// checkDir refuses a directory that another user could read or fill.
func checkDir(dir string, info fs.FileInfo, uid int) error {
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != uid {
		return fmt.Errorf("%w: %s belongs to user %d: choose another path", ErrDir, dir, owner)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 || mode&dirMode != dirMode {
		return fmt.Errorf("%w: %s has mode %#o, and pages tell what users asked: chmod 700 %s", ErrDir, dir, mode, dir)
	}
	return nil
}

// lockDir takes the directory's lock, which the kernel releases at the end of the process.
func lockDir(root *os.Root, dir string) (*os.File, error) {
	f, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY, fileMode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s/%s is not a regular file: remove it", ErrDir, dir, lockName)
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w: %s holds %s: give each generator a directory of its own", ErrLocked, holder(f), dir)
	}
	if err == nil {
		_ = f.Truncate(0) // only for the error above
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// holder names the process that wrote its id into the lock file.
func holder(f *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 20))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}
