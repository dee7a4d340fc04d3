package protocol

import (
	"math"
	"testing"
)

// TestSleepIsBounded: an idle time is 0 to a day.
func TestSleepIsBounded(t *testing.T) {
	for idle, ok := range map[float64]bool{
		0: true, 0.5: true, MaxIdle: true, -0.5: false, MaxIdle + 1: false, math.Inf(1): false, math.NaN(): false,
	} {
		if e := (&SleepRequest{IdleS: idle}).Validate(); ok != (e == nil) || e != nil && e.Code != CodeBadRequest {
			t.Errorf("%v: %v", idle, e)
		}
	}
}
