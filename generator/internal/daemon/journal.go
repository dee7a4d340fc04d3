package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/unixsocket"
	"reel.internal/reel/protocol"
)

// Journal keeps the record of the generator's state beside its socket. It changes the record
// only if this process owns the socket's path.
type Journal struct {
	Path  string
	Model string // its name, for the record of one that sleeps
	Log   zerolog.Logger
	Owned bool
}

// Failed records the reason of the generator's end. An error about a socket of another program
// is not recorded.
func (j Journal) Failed(err error) {
	for _, foreign := range []error{
		unixsocket.ErrInUse, unixsocket.ErrPath, unixsocket.ErrNotSocket, unixsocket.ErrForeignDir,
	} {
		if errors.Is(err, foreign) {
			return
		}
	}
	j.write(protocol.Record{State: protocol.StateFailed, Failure: failureOf(err)})
}

// Draining records that running requests finish and new ones are refused.
func (j Journal) Draining() { j.write(protocol.Record{State: protocol.StateDraining}) }

// Sleeping records that the generator has ended and that the next connection starts it. err is why its start gave up,
// or nil.
func (j Journal) Sleeping(err error) {
	r := protocol.Record{State: protocol.StateSleeping, Model: j.Model}
	if err != nil {
		r.Failure = failureOf(err)
	}
	j.write(r)
}

// failureOf returns err as the record has it.
func failureOf(err error) *protocol.Failure {
	e := failure.Explain(err)
	return &protocol.Failure{Code: e.Code, Message: e.Message, Hint: e.Hint}
}

// maxRecord bounds the bytes of a record. A usual one has a few hundred.
const maxRecord = 64 << 10

// Wake removes the record of a generator that slept. Other records stay until this one serves.
func (j Journal) Wake() {
	text, err := files.Read(files.Dir(filepath.Dir(j.Path)), filepath.Base(j.Path), maxRecord)
	var r protocol.Record
	if err == nil && json.Unmarshal(text, &r) == nil && r.State == protocol.StateSleeping {
		j.Clear()
	}
}

// write replaces the record. An error is only logged, because the record serves `reel status`
// alone.
func (j Journal) write(r protocol.Record) {
	if !j.Owned {
		return
	}
	r.PID, r.At = os.Getpid(), time.Now().UTC()
	text, err := json.Marshal(r)
	if err == nil {
		err = replaceFile(j.Path, append(text, '\n'))
	}
	if err != nil {
		j.Log.Debug().Err(err).Msg("no record of the generator's state")
	}
}

// replaceFile writes a file atomically, readable for the group of the socket's directory.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o640), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Clear removes the record.
func (j Journal) Clear() {
	if j.Owned {
		_ = os.Remove(j.Path)
	}
}
