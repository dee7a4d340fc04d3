package device

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrUnreadable means that a page of a mapped file is gone because the file was truncated.
var ErrUnreadable = errors.New("device: memory of a mapped file cannot be read any more")

// CopyMapped copies src, which may be a mapped file, to dst, which is at least as long.
// If the file was truncated it returns [ErrUnreadable] instead of ending the process.
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
