package protocol

import "math"

// MaxIdle bounds SleepRequest.IdleS, in seconds: a day.
const MaxIdle = 24 * 60 * 60

// SleepRequest asks a generator that no request runs on to end, so that its device is free. Its next connection
// starts it again. It was added to version 1.
type SleepRequest struct {
	Type string `msgpack:"type"`
	// IdleS is the least time since the last request ended, in seconds.
	IdleS float64 `msgpack:"idle_s,omitempty"`
}

// Validate checks the idle time. The error's code is CodeBadRequest.
func (s *SleepRequest) Validate() *Error {
	if math.IsNaN(s.IdleS) || s.IdleS < 0 || s.IdleS > MaxIdle {
		return Errorf(CodeBadRequest, "correct the field or leave it out", "idle_s is %v: it must be 0 to %d", s.IdleS, MaxIdle)
	}
	return nil
}

// Sleeping answers a SleepRequest: the generator ends now. CodeDraining and the end of the connection follow.
type Sleeping struct {
	Type string `msgpack:"type"`
}
