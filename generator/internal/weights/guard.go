package weights

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard calls fn, which reads the Data of tensors on the calling goroutine. If fn
// reads a page that a mapped file has lost, Guard returns ErrChanged; without Guard
// the fault would end the process. Other panics pass through.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr // only the error of a memory fault has it
		}:
			err = fmt.Errorf("weights: %w: %w", ErrChanged, r)
		default:
			panic(r)
		}
	}()
	return fn()
}
