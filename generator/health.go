//go:build linux

package main

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

// journal keeps the record beside a socket. Only the owner of the socket's path
// changes it: another generator's record stays as it is.
type journal struct {
	path  string
	log   zerolog.Logger
	owned bool
}

// failed records why the generator ended. A socket that is not its own says
// nothing of it.
func (j journal) failed(err error) {
	for _, foreign := range []error{unixsocket.ErrInUse, unixsocket.ErrPath, unixsocket.ErrNotSocket, unixsocket.ErrForeignDir} {
		if errors.Is(err, foreign) {
			return
		}
	}
	e := failure.Explain(err)
	j.write(protocol.Record{State: protocol.StateFailed, Failure: &protocol.Failure{Code: e.Code, Message: e.Message, Hint: e.Hint}})
}

func (j journal) draining() { j.write(protocol.Record{State: protocol.StateDraining}) }

// write puts a record in the place of an older one. Without it only `reel status`
// knows less: where it cannot be written that is logged, and no more.
func (j journal) write(r protocol.Record) {
	if !j.owned {
		return
	}
	r.PID, r.At = os.Getpid(), time.Now().UTC()
	text, err := json.Marshal(r)
	if err == nil {
		err = replaceFile(j.path, append(text, '\n'))
	}
	if err != nil {
		j.log.Debug().Err(err).Msg("no record of the generator's state")
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

// clear removes the record: what it told is over.
func (j journal) clear() {
	if j.owned {
		_ = os.Remove(j.path)
	}
}
