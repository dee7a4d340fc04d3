package device

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrUnreadable says that a page of a mapped file is gone: the file became shorter.
var ErrUnreadable = errors.New("device: memory of a mapped file cannot be read any more")

// CopyMapped copies src, which may be a mapped file, to dst, which is at least as long.
// It does not end the process where the file has become shorter: ErrUnreadable.
func CopyMapped(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			err = fmt.Errorf("%w: %w", ErrUnreadable, r)
		default:
			panic(r)
		}
	}()
	copy(dst, src)
	return nil
}
