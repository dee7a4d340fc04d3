package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"syscall"
	"time"

	"reel/protocol"
)

const (
	firstPause = 10 * time.Millisecond  // after the first attempt; it doubles
	longPause  = 200 * time.Millisecond // between later attempts
	// answerTime bounds how long a generator that took the connection may be silent.
	answerTime = 5 * time.Second
)

// Options says which generator to dial. The zero value is the one that is
// found in the usual places, tried once.
type Options struct {
	// Socket is the path of the generator's socket. Where it is empty the first
	// that exists is taken: $REEL_SOCKET (alone, if it is set),
	// $XDG_RUNTIME_DIR/reel/generator.sock, /tmp/reel-UID/generator.sock,
	// /run/reel/generator.sock.
	Socket string
	// Wait is how long Dial keeps trying while a generator may still come: its
	// socket is absent from a directory that is there, it refuses connections,
	// or it is loading its model.
	Wait time.Duration
	// OnLoading, unless nil, is called for each answer that says that the model
	// is being loaded, with the progress from 0 to 1.
	OnLoading func(progress float64, message string)
	// OnPeer, unless nil, is called for each connection that is made, before
	// anything is sent on it, with who listens there.
	OnPeer func(Peer)
}

// Dial connects to a generator that is ready to serve. It fails with
// ErrNoGenerator, ErrDenied, ErrConfig, ctx's error, or the generator's own
// *Error, as with the code "loading" where Wait was too short.
func Dial(ctx context.Context, o Options) (*Client, error) {
	return retry(ctx, o.Wait, func() (*Client, error) { return o.dial(ctx) })
}

// ReadStatus asks a generator for its status, also one that is still loading
// its model. It fails as Dial does.
func ReadStatus(ctx context.Context, o Options) (*Status, error) {
	return retry(ctx, o.Wait, func() (*Status, error) { return o.status(ctx) })
}

// retry calls attempt until it succeeds, fails for good, or wait has passed.
func retry[T any](ctx context.Context, wait time.Duration, attempt func() (T, error)) (T, error) {
	deadline := time.Now().Add(wait)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		result, err := attempt()
		left := time.Until(deadline)
		if err == nil || left <= 0 || !hopeful(err) {
			return result, err
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return result, err
		}
	}
}

// hopeful reports whether what failed with err may soon succeed.
func hopeful(err error) bool {
	// EAGAIN: the queue of connections to be accepted is full.
	return isLoading(err) || errors.Is(err, errSocketAbsent) || errors.Is(err, ErrNoAnswer) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}

// isLoading reports whether err is the generator's error "loading".
func isLoading(err error) bool {
	var said *Error
	return errors.As(err, &said) && said.Code == protocol.CodeLoading
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dial finds the socket, connects once and says hello.
func (o *Options) dial(ctx context.Context) (*Client, error) {
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := greet(ctx, conn)
	if err != nil {
		conn.Close()
		o.report(err)
		return nil, err
	}
	return c, nil
}

// connect finds the socket and connects to it.
func (o *Options) connect(ctx context.Context) (net.Conn, error) {
	path, err := find(places(o.Socket))
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		if peer, known := peerOf(conn, path); known && o.OnPeer != nil {
			o.OnPeer(peer)
		}
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	case errors.Is(err, fs.ErrNotExist):
		// It went between the look and the dial.
		return nil, fmt.Errorf("%w: %w: %w", ErrNoGenerator, errSocketAbsent, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoGenerator, err)
}

// report tells OnLoading where err says that the generator is loading.
func (o *Options) report(err error) {
	if o.OnLoading == nil || !isLoading(err) {
		return
	}
	var said *Error
	errors.As(err, &said)
	progress := 0.0
	if said.Progress != nil {
		progress = *said.Progress
	}
	o.OnLoading(progress, said.Message)
}

// greet says hello on conn and returns the client once welcome came.
func greet(ctx context.Context, conn net.Conn) (*Client, error) {
	c := newClient(conn)
	welcome, err := within(ctx, conn, c.hello)
	if err != nil {
		return nil, err
	}
	c.welcome = *welcome
	c.conn = attend(conn, runtime.GOMAXPROCS(0))
	go c.read()
	return c, nil
}

// status connects once and asks for the status, whatever hello gets.
func (o *Options) status(ctx context.Context) (*Status, error) {
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := newClient(conn)
	_, err = within(ctx, conn, c.hello)
	var said *Error
	if err != nil && (!errors.As(err, &said) || said.Closes()) {
		return nil, err
	}
	return within(ctx, conn, func() (*Status, error) {
		return exchange[*Status](c, &protocol.StatusRequest{})
	})
}

// within runs a talk on conn that ends when ctx does, or when the generator has
// been silent for too long.
func within[T any](ctx context.Context, conn net.Conn, talk func() (T, error)) (T, error) {
	// Setting a deadline fails only on a closed connection, and then talk does too.
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	// A deadline in the past wakes the talk.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	result, err := talk()
	if !stop() {
		return result, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	return result, err
}
