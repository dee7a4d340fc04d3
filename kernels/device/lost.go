package device

import (
	"fmt"
	"runtime"
)

// fault is a panic of the runtime at an address that cannot be read: a page of a
// mapped file that has become shorter. debug.SetPanicOnFault asks for it.
type fault interface {
	runtime.Error
	Addr() uintptr
}

// survive has the device lost, for good, where what deferred it met a fault. Any
// other panic goes on.
func (h *Host) survive() {
	switch r := recover().(type) {
	case nil:
	case fault:
		h.faults.lose(fmt.Errorf("%w: weights could not be read, their file was changed: %w", ErrSticky, r))
	default:
		panic(r)
	}
}

// lose has every later call fail.
func (f *Faults) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
}
