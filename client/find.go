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

// SocketEnv names the environment variable with the path of the generator's socket. It
// is used if [Options].Socket is empty.
const SocketEnv = "REEL_SOCKET"

// maxSocketPath is the longest path, in bytes, that fits a sockaddr_un with its
// terminating zero.
const maxSocketPath = 107

// Reasons why no socket was found. Only errSocketAbsent is worth a retry: a starting
// generator creates its socket in a directory that already exists.
var (
	errSocketAbsent = errors.New("no such socket")
	errNoDirectory  = errors.New("no such directory")
)

// candidate is a path where a generator's socket may be.
type candidate struct {
	path string
	// shared means that any user can create the directory, as under /tmp.
	shared bool
}

// candidates lists the paths to try, in order. A path that the user named is the only one.
func candidates(named string) []candidate {
	if named == "" {
		named = os.Getenv(SocketEnv)
	}
	if named != "" {
		return []candidate{{path: named}}
	}
	var list []candidate
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, candidate{path: filepath.Join(dir, "reel", "generator.sock")})
	}
	own := "reel-" + strconv.Itoa(os.Getuid())
	return append(list,
		candidate{path: filepath.Join("/tmp", own, "generator.sock"), shared: true},
		candidate{path: serviceSocket})
}

// find returns the first path of list that exists.
func find(list []candidate) (string, error) {
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

// notFound reports what was found at each path.
type notFound struct {
	cause error // errSocketAbsent if any path has that reason, else errNoDirectory
	seen  []string
}

func (e *notFound) Error() string { return "looked for " + strings.Join(e.seen, ", ") }
func (e *notFound) Unwrap() error { return e.cause }

// noSocket joins the reasons why each path of list was refused.
func noSocket(list []candidate, reasons []error) error {
	e := &notFound{cause: errNoDirectory}
	for i, reason := range reasons {
		if errors.Is(reason, errSocketAbsent) {
			e.cause = errSocketAbsent
		}
		e.seen = append(e.seen, fmt.Sprintf("%s (%v)", list[i].path, reason))
	}
	return e
}

// check returns nil if p's socket exists and may be trusted. A path that this user may
// not look at counts as existing; connecting to it reports that access is denied.
func (p candidate) check() error {
	if len(p.path) > maxSocketPath {
		return fmt.Errorf("%w: the socket's path has %d bytes, more than %d: %s",
			ErrConfig, len(p.path), maxSocketPath, p.path)
	}
	if strings.HasPrefix(p.path, "@") {
		// Package net would take it for an abstract socket, which has no owner and no mode.
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

// checkDirectory refuses a missing directory, and a shared one in which another user
// could have created the socket.
func (p candidate) checkDirectory() error {
	dir := filepath.Dir(p.path)
	_, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errNoDirectory
	}
	if !p.shared || err != nil {
		return nil
	}
	return checkPrivate(dir)
}

// checkPrivate returns an error unless dir is a directory (no link) that belongs to this
// user and that others may not write.
func checkPrivate(dir string) error {
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
