package device

import (
	"fmt"
	"runtime"
)

// fault is the runtime's panic at an unreadable address, such as a page past the end
// of a mapped file that was truncated. It needs debug.SetPanicOnFault.
type fault interface {
	runtime.Error
	Addr() uintptr
}

// loseOnFault recovers from a fault and marks the device as lost. It is deferred. Other
// panics continue.
func (h *Host) loseOnFault() {
	switch r := recover().(type) {
	case nil:
	case fault:
		h.faults.lose(fmt.Errorf("%w: weights could not be read, their file was changed: %w", ErrSticky, r))
	default:
		panic(r)
	}
}

// lost returns the error that every later call returns, or nil.
func (f *Faults) lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// lose makes every later call fail with err.
func (f *Faults) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}
