package device

import (
	"fmt"
	"sync"
)

// Faults injects failures into a host device: the n-th call that can fail does.
type Faults struct {
	mu     sync.Mutex
	calls  int
	at     int // the call that fails; 0 means none
	sticky bool
	failed error // of a sticky failure, from then on
}

// FailAt has the n-th call from now fail, counted from 1. A sticky failure has
// every later call fail too, as a device does after an illegal access. 0 ends it.
func (f *Faults) FailAt(n int, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.sticky, f.failed = 0, n, sticky, nil
}

// Calls is how many calls there were since FailAt, or since the device was made.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// next counts a call and returns its failure.
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
