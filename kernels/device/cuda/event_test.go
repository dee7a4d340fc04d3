//go:build cuda

package cuda

import (
	"sync/atomic"
	"testing"
	"time"
)

// An event is awaited until its number is there, or a later one, and no longer than asked. Numbers wrap around.
func TestEventIsAwaited(t *testing.T) {
	for _, number := range []uint32{1, 7, 1 << 31, 0, 1<<32 - 1} {
		var w atomic.Uint32
		w.Store(number - 1)
		e := event{word: word{host: &w}, number: number}
		begun := time.Now()
		if e.WaitFor(10*time.Millisecond) || time.Since(begun) < 10*time.Millisecond {
			t.Errorf("%d: there after %v", number, time.Since(begun))
		}
		const raised = 30 * time.Millisecond
		begun = time.Now()
		time.AfterFunc(raised, func() { w.Store(number + 1) })
		if !e.WaitFor(time.Minute) || time.Since(begun) < raised {
			t.Errorf("%d: not there after %v", number, time.Since(begun))
		}
		if !e.WaitFor(0) {
			t.Errorf("%d: not there at once", number)
		}
	}
}
