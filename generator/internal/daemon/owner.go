package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/unixsocket"
)

// Own locks the socket's path for this process. It comes before any step that can fail,
// because only the owner listens there and keeps the record. It waits at most the time wait
// for another owner that starts or drains to end; if that owner still holds the path, the error
// is [unixsocket.ErrLocked]. If the owner listens, the error is [unixsocket.ErrInUse] at once.
// A process that inherits its socket serves without the lock, and keeps no record.
func Own(
	socket string, inherits bool, wait time.Duration, stop <-chan os.Signal, log zerolog.Logger,
) (*unixsocket.Lock, error) {
	lock, err := waitToOwn(socket, wait, stop, log)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, config.ErrSignal):
		return nil, err
	case inherits:
		if errors.Is(err, fs.ErrPermission) {
			err = fs.ErrPermission // who listens at the path may be this process itself
		}
		log.Warn().Err(err).Str("socket", socket).Msg("serves on the service manager's socket and keeps no record of failures beside it")
		return nil, nil
	}
	return nil, config.Refuse(config.ErrConfig, "--socket: %w", err)
}

// waitToOwn acquires the lock. It returns [config.ErrSignal] if a signal ends the wait.
func waitToOwn(
	socket string, wait time.Duration, stop <-chan os.Signal, log zerolog.Logger,
) (lock *unixsocket.Lock, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
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
		case <-stop:
			cancel()
			if <-done; lock != nil {
				lock.Release()
			}
			return nil, config.ErrSignal
		}
	}
}
