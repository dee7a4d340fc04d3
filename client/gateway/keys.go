package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"reel.internal/reel/client/internal/regular"
)

const (
	minKeyBytes = 16      // fewer can be guessed
	maxKeyFile  = 1 << 20 // bytes
)

// Keys are the keys with which clients may ask. It holds their hashes alone.
type Keys struct{ hashes [][sha256.Size]byte }

// ReadKeys reads a file with a key in each line. Empty lines and those that begin with # are skipped.
// The file must belong to this user or root, and nobody else may read it but its group. Errors:
// [ErrConfig], or those of the system.
func ReadKeys(path string) (*Keys, error) {
	file, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("%w: the file of keys: %w", ErrConfig, err)
	}
	defer file.Close()
	if err := checkKeyFile(file); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("%w: %s: it has more than %d bytes", ErrConfig, path, maxKeyFile)
	}
	keys, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	return keys, nil
}

// checkKeyFile refuses a file that others may read or write.
func checkKeyFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to another user: its owner must be root or the gateway's user")
	case info.Mode().Perm()&0o027 != 0:
		return fmt.Errorf("its mode is %#o, so others may read or change it: chmod 600", info.Mode().Perm())
	}
	return nil
}

func parseKeys(text string) (*Keys, error) {
	keys := &Keys{}
	for i, line := range strings.Split(text, "\n") {
		key := strings.TrimSpace(line)
		switch {
		case key == "" || key[0] == '#':
		case len(key) < minKeyBytes:
			return nil, fmt.Errorf("line %d: a key has at least %d characters: make one with openssl rand -hex 32",
				i+1, minKeyBytes)
		default:
			keys.hashes = append(keys.hashes, sha256.Sum256([]byte(key)))
		}
	}
	if len(keys.hashes) == 0 {
		return nil, fmt.Errorf("it has no key: write one with openssl rand -hex 32")
	}
	return keys, nil
}

// user returns the name of the user with a key. Hashes are compared, each in constant time and
// always all, so that no time tells how much of a key was right.
func (k *Keys) user(key string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(key))
	found := 0
	for i := range k.hashes {
		found |= subtle.ConstantTimeCompare(hash[:], k.hashes[i][:])
	}
	if found != 1 {
		return "", false
	}
	// A hash of the hash: a name in the generator's memory does not tell what is compared here.
	second := sha256.Sum256(hash[:])
	return "key " + hex.EncodeToString(second[:8]), true
}
