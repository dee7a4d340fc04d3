package device

import (
	"fmt"
	"sync"
)

// Faults injects failures into a host device, for tests.
type Faults struct {
	mu     sync.Mutex
	calls  int
	at     int // number of the call that fails; 0: none
	sticky bool
	failed error // returned by every call after a sticky failure

	exchange ExchangeFault
}

// FailAt makes the n-th call from now fail, counted from 1; 0 ends all failures. After
// a sticky failure every later call fails too, as on a GPU after an illegal access.
func (f *Faults) FailAt(n int, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.sticky, f.failed = 0, n, sticky, nil
}

// Calls returns the number of calls since FailAt, or since the device was made.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// next counts a call and returns its injected failure, or nil.
func (f *Faults) next(k CallKind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return f.failed
	}
	f.calls++
	if f.calls != f.at {
		return nil
	}
	err := fmt.Errorf("device: injected failure at call %d, %s", f.calls, k)
	if f.sticky {
		f.failed = fmt.Errorf("%w: %w", ErrSticky, err)
		return f.failed
	}
	return err
}
