package weights

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard calls fn, which reads the Data of tensors on its own goroutine. Where a
// file has become shorter since it was mapped, and a page is read that is gone,
// Guard returns ErrChanged instead of the process ending.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr // of a fault alone
		}:
			err = fmt.Errorf("weights: %w: %w", ErrChanged, r)
		default:
			panic(r)
		}
	}()
	return fn()
}
