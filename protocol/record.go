package protocol

import (
	"strings"
	"time"
)

// Record is a note in JSON that a generator leaves beside its socket when it no longer
// takes connections, so that a client can say why nothing answers. It is removed after a
// clean stop, and when a generator serves there again.
//
// A sleeping generator's process has ended, and a service manager listens on its socket: the
// next connection starts the generator.
type Record struct {
	State   string    `json:"state"` // StateDraining, StateFailed or StateSleeping
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Failure *Failure  `json:"failure,omitempty"` // if State is StateFailed; if StateSleeping, why the last start ended
	// Model is the model's name with StateSleeping; empty while unknown.
	Model string `json:"model,omitempty"`
}

// RecordPath returns the path of the record for a socket.
func RecordPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".state" }
