//go:build linux

package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/config"
	"reel/generator/internal/unixsocket"
)

// own makes this process the owner of the socket's path, before it does anything
// that can fail: only the owner listens there and keeps the record. It waits as
// long as an owner may drain; then the error is unixsocket.ErrLocked. A process
// that inherits its socket serves without the lock too, and keeps no record then.
func (p *program) own(socket string, log zerolog.Logger) (*unixsocket.Lock, error) {
	lock, err := p.waitToOwn(socket, log)
	switch {
	case err == nil:
		return lock, nil
	case err == config.ErrSignal:
		return nil, err
	case p.env("LISTEN_FDS") != "":
		log.Warn().Err(err).Msg("serves on the service manager's socket and keeps no record of failures beside it")
		return nil, nil
	}
	return nil, config.Refuse(config.ErrConfig, "--socket: %w", err)
}

// waitToOwn acquires the lock, or returns errSignal once a signal ends the wait.
func (p *program) waitToOwn(socket string, log zerolog.Logger) (lock *unixsocket.Lock, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.patience+flushTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lock, err = unixsocket.Acquire(ctx, socket)
	}()
	told := time.After(time.Second)
	for {
		select {
		case <-done:
			return lock, err
		case <-told:
			log.Info().Str("socket", socket).Msg("another generator owns the socket: waits for it to end")
		case <-p.signals:
			cancel()
			if <-done; lock != nil {
				lock.Release()
			}
			return nil, config.ErrSignal
		}
	}
}
