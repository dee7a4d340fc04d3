package hardware

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// A busy device is tried again until the limit; any other error ends the tries at once.
func TestBusyDeviceIsTriedAgain(t *testing.T) {
	busy := fmt.Errorf("context: %w", device.ErrBusy)
	other := errors.New("another")
	for name, c := range map[string]struct {
		busyFor int
		then    error
		limit   time.Duration
		want    error
		tries   int
	}{
		"free in the end":  {3, nil, time.Hour, nil, 4},
		"broken after all": {2, other, time.Hour, other, 3},
		"never free":       {1000, nil, 0, device.ErrBusy, 1},
	} {
		tries, told := 0, 0
		err := Retry{Limit: c.limit, Pause: time.Microsecond}.WhileBusy(func(float64, string) { told++ }, func() error {
			if tries++; tries <= c.busyFor {
				return busy
			}
			return c.then
		})
		if !errors.Is(err, c.want) || tries != c.tries || told != tries-1 {
			t.Errorf("%s: %v after %d tries, reported %d times", name, err, tries, told)
		}
	}
}
