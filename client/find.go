package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// SocketEnv names the environment variable that holds the generator's socket,
// where Options.Socket is empty.
const SocketEnv = "REEL_SOCKET"

// maxSocketPath is the longest path, in bytes, that fits a sockaddr_un with
// its closing zero.
const maxSocketPath = 107

// Why no socket was found. Only the first leaves hope: a generator that is
// starting creates the socket in a directory that is there.
var (
	errSocketAbsent = errors.New("no such socket")
	errNoDirectory  = errors.New("no such directory")
)

// place is a path at which a generator's socket may be.
type place struct {
	path string
	// shared is set where any user can create the directory, as under /tmp.
	shared bool
}

// places lists where to look, in order. A path that the user named is the only one.
func places(named string) []place {
	if named == "" {
		named = os.Getenv(SocketEnv)
	}
	if named != "" {
		return []place{{path: named}}
	}
	var list []place
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, place{path: filepath.Join(dir, "reel", "generator.sock")})
	}
	own := "reel-" + strconv.Itoa(os.Getuid())
	return append(list,
		place{path: filepath.Join("/tmp", own, "generator.sock"), shared: true},
		place{path: serviceSocket})
}

// find returns the first of list that exists.
func find(list []place) (string, error) {
	reasons := make([]error, len(list))
	for i, p := range list {
		if reasons[i] = p.check(); reasons[i] == nil {
			return p.path, nil
		}
		if errors.Is(reasons[i], ErrConfig) {
			return "", reasons[i]
		}
	}
	return "", fmt.Errorf("%w: %w", ErrNoGenerator, noSocket(list, reasons))
}

// notFound says what was seen at each place.
type notFound struct {
	why  error // errSocketAbsent where it is true of one place, else errNoDirectory
	seen []string
}

func (e *notFound) Error() string { return "looked for " + strings.Join(e.seen, ", ") }
func (e *notFound) Unwrap() error { return e.why }

// noSocket joins the reasons for which each place of list is none.
func noSocket(list []place, reasons []error) error {
	e := &notFound{why: errNoDirectory}
	for i, reason := range reasons {
		if errors.Is(reason, errSocketAbsent) {
			e.why = errSocketAbsent
		}
		e.seen = append(e.seen, fmt.Sprintf("%s (%v)", list[i].path, reason))
	}
	return e
}

// check returns nil where p's socket exists and may be trusted. A place that
// may not be looked at counts as one that exists: connecting says who is denied.
func (p place) check() error {
	if len(p.path) > maxSocketPath {
		return fmt.Errorf("%w: the socket's path has %d bytes, more than %d: %s", ErrConfig, len(p.path), maxSocketPath, p.path)
	}
	if strings.HasPrefix(p.path, "@") {
		// package net would take it for an abstract socket, which has no owner and no mode.
		return fmt.Errorf("%w: the socket is no path of a file: %s", ErrConfig, p.path)
	}
	if err := p.checkDirectory(); err != nil {
		return err
	}
	info, err := os.Stat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errSocketAbsent
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: no socket but another kind of file: %s", ErrConfig, p.path)
	}
	return nil
}

// checkDirectory refuses a directory that is missing, and one in a shared place
// in which another user could have made the socket.
func (p place) checkDirectory() error {
	dir := filepath.Dir(p.path)
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errNoDirectory
	}
	if !p.shared || err != nil {
		return nil
	}
	return private(dir)
}

// private reports an error unless dir is a directory, no link, that belongs to
// this user and that others may not write.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("not used: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return errors.New("not used: its place is no directory")
	case !ok || int(owner.Uid) != os.Getuid():
		return errors.New("not used: its directory belongs to another user")
	case info.Mode().Perm()&0o002 != 0:
		return errors.New("not used: others may write its directory")
	}
	return nil
}
