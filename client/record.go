package client

import (
	"encoding/json"
	"os"
	"syscall"

	"reel/protocol"
)

// Record tells why no generator answers at any of the places where o looks for
// one: what the last one left there. It is nil where none has left anything, and
// where one that said that it drains has gone.
func Record(o Options) *protocol.Record {
	for _, p := range places(o.Socket) {
		if p.checkDirectory() != nil {
			continue
		}
		if r := readRecord(protocol.RecordPath(p.path)); r != nil {
			return r
		}
	}
	return nil
}

func readRecord(path string) *protocol.Record {
	text, err := os.ReadFile(path)
	var r protocol.Record
	if err != nil || json.Unmarshal(text, &r) != nil {
		return nil
	}
	switch r.State {
	case protocol.StateDraining:
		if syscall.Kill(r.PID, 0) == syscall.ESRCH {
			return nil
		}
	case protocol.StateFailed:
		if r.Failure == nil {
			return nil
		}
	default:
		return nil
	}
	return &r
}
