package client

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"reel.internal/reel/client/internal/regular"
	"reel.internal/reel/protocol"
)

// Record returns the note that the last generator left beside its socket, which says
// why none answers now. It is nil if there is none at any of the paths of o, or if the
// generator was draining and has exited.
func Record(o Options) *protocol.Record {
	for _, p := range candidates(o.Socket) {
		if p.checkDirectory() != nil {
			continue
		}
		r := readRecord(protocol.RecordPath(p.path))
		if r == nil || r.State == protocol.StateSleeping && p.check() != nil {
			continue // without its socket a sleeping generator is never started again
		}
		return r
	}
	return nil
}

// asleep returns [ErrSleeping] if a connection for o would start a sleeping generator.
func asleep(o Options) error {
	for _, p := range candidates(o.Socket) {
		if p.check() != nil {
			continue
		}
		// connect would choose this path.
		if r := readRecord(protocol.RecordPath(p.path)); r != nil && r.State == protocol.StateSleeping {
			return ErrSleeping
		}
		return nil
	}
	return nil
}

// maxRecord bounds the bytes of a record. A usual one has a few hundred.
const maxRecord = 64 << 10

// readSmall reads a regular file of at most maxRecord bytes.
func readSmall(path string) ([]byte, error) {
	file, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecord {
		return nil, fmt.Errorf("%s is no record: %w", path, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(file, maxRecord))
}

func readRecord(path string) *protocol.Record {
	text, err := readSmall(path)
	var r protocol.Record
	if err != nil || json.Unmarshal(text, &r) != nil {
		return nil
	}
	switch r.State {
	case protocol.StateDraining:
		if syscall.Kill(r.PID, 0) == syscall.ESRCH {
			return nil
		}
	case protocol.StateSleeping:
	case protocol.StateFailed:
		if r.Failure == nil {
			return nil
		}
	default:
		return nil
	}
	return &r
}
