package protocol

import (
	"strings"
	"time"
)

// Record is what a generator that takes no connections any more leaves beside its
// socket, as JSON, so that a client can tell why nobody answers. It is gone once a
// generator serves there again, and after a clean stop.
type Record struct {
	State   string    `json:"state"` // StateDraining or StateFailed
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Failure *Failure  `json:"failure,omitempty"` // of StateFailed
}

// RecordPath is where the record of the generator on a socket lies.
func RecordPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".state" }
