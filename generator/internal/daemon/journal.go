package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/failure"
	"reel/generator/internal/unixsocket"
	"reel/protocol"
)

// Journal keeps the record beside a socket. Only the owner of the socket's path
// changes it: another generator's record stays as it is.
type Journal struct {
	Path  string
	Log   zerolog.Logger
	Owned bool
}

// Failed records why the generator ended. A socket that is not its own says
// nothing of it.
func (j Journal) Failed(err error) {
	for _, foreign := range []error{unixsocket.ErrInUse, unixsocket.ErrPath, unixsocket.ErrNotSocket, unixsocket.ErrForeignDir} {
		if errors.Is(err, foreign) {
			return
		}
	}
	e := failure.Explain(err)
	j.write(protocol.Record{State: protocol.StateFailed, Failure: &protocol.Failure{Code: e.Code, Message: e.Message, Hint: e.Hint}})
}

func (j Journal) Draining() { j.write(protocol.Record{State: protocol.StateDraining}) }

// write puts a record in the place of an older one. Without it only `reel status`
// knows less: where it cannot be written that is logged, and no more.
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

// replaceFile writes a file that whoever may use the socket's directory can read.
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

// Clear removes the record: what it told is over.
func (j Journal) Clear() {
	if j.Owned {
		_ = os.Remove(j.Path)
	}
}
