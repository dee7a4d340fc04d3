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

	"reel.internal/reel/protocol"
)

const (
	firstPause = 10 * time.Millisecond  // after the first attempt; doubles each time
	maxPause   = 200 * time.Millisecond // the longest
	// answerTime bounds how long a generator that took the connection may be silent.
	answerTime = 5 * time.Second
)

// Options says which generator to dial. The zero value tries once to reach the
// generator in the usual places.
type Options struct {
	// Socket is the path of the generator's socket. If it is empty, Dial uses
	// $REEL_SOCKET if set, else the first of these that exists:
	// $XDG_RUNTIME_DIR/reel/generator.sock, /tmp/reel-UID/generator.sock,
	// /run/reel/generator.sock.
	Socket string
	// Wait bounds the time that Dial keeps trying while a generator may still come:
	// the socket is missing but its directory exists, connections are refused, or the
	// model is loading.
	Wait time.Duration
	// Spin spends processor time for a lower latency: the Client reads on a thread of its
	// own, and while tokens come at a steady pace, one every 1 to 20 ms, that thread polls
	// shortly before the next one is due, for a tenth of the time at most. It polls only if
	// Go has at least 4 processors.
	Spin bool
	// NoWake makes Dial fail with [ErrSleeping] instead of waking a generator that sleeps.
	NoWake bool
	// OnLoading, unless nil, is called for each answer "loading", with the progress
	// from 0 to 1.
	OnLoading func(progress float64, message string)
	// OnWait, unless nil, is called before each further attempt, with the error of the last one.
	OnWait func(err error)
	// OnPeer, unless nil, is called with the listening process for each connection
	// made, before anything is sent on it.
	OnPeer func(Peer)
}

// Dial connects to a generator that is ready to serve. It fails with [ErrNoGenerator],
// [ErrDenied], [ErrConfig], ctx's error, or an [*Error] from the generator, such as one
// with the code "loading" if Wait was too short.
func Dial(ctx context.Context, o Options) (*Client, error) {
	return retry(ctx, o, func() (*Client, error) { return o.dial(ctx) })
}

// ReadStatus asks a generator for its status, even while it loads its model. It fails
// as [Dial] does, and with [ErrSleeping] instead of waking a generator that sleeps.
func ReadStatus(ctx context.Context, o Options) (*Status, error) {
	return retry(ctx, o, func() (*Status, error) { return o.status(ctx) })
}

// retry calls attempt until it succeeds, fails for good, or o.Wait has passed.
func retry[T any](ctx context.Context, o Options, attempt func() (T, error)) (T, error) {
	deadline := time.Now().Add(o.Wait)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		result, err := attempt()
		left := time.Until(deadline)
		if err == nil || left <= 0 || !mayRetry(err) {
			return result, err
		}
		if o.OnWait != nil {
			o.OnWait(err)
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return result, err
		}
	}
}

// mayRetry reports whether a retry after err may succeed.
func mayRetry(err error) bool {
	// EAGAIN means that the socket's queue of connections to accept is full.
	return isLoading(err) || errors.Is(err, errSocketAbsent) || errors.Is(err, ErrNoAnswer) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN)
}

// isLoading reports whether err is the generator's error "loading".
func isLoading(err error) bool {
	var reported *Error
	return errors.As(err, &reported) && reported.Code == protocol.CodeLoading
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
	if o.NoWake {
		if err := asleep(*o); err != nil {
			return nil, err
		}
	}
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	c, err := greet(ctx, conn, o.Spin)
	if err != nil {
		conn.Close()
		o.reportLoading(err)
		return nil, err
	}
	return c, nil
}

// connect finds the socket and connects to it.
func (o *Options) connect(ctx context.Context) (net.Conn, error) {
	path, err := find(candidates(o.Socket))
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
		// The socket vanished between find and DialContext.
		return nil, fmt.Errorf("%w: %w: %w", ErrNoGenerator, errSocketAbsent, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoGenerator, err)
}

// reportLoading calls OnLoading if err says that the generator is loading.
func (o *Options) reportLoading(err error) {
	if o.OnLoading == nil || !isLoading(err) {
		return
	}
	var reported *Error
	errors.As(err, &reported)
	progress := 0.0
	if reported.Progress != nil {
		progress = *reported.Progress
	}
	o.OnLoading(progress, reported.Message)
}

// greet says hello on conn and returns the client after the welcome.
func greet(ctx context.Context, conn net.Conn, spin bool) (*Client, error) {
	c := newClient(conn)
	welcome, err := withAnswerTime(ctx, conn, c.hello)
	if err != nil {
		return nil, err
	}
	c.welcome = *welcome
	if spin {
		c.conn = newSpinningReader(conn, runtime.GOMAXPROCS(0))
	}
	go c.read()
	return c, nil
}

// status connects once and asks for the status, even if hello is refused.
func (o *Options) status(ctx context.Context) (*Status, error) {
	if err := asleep(*o); err != nil {
		return nil, err
	}
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := newClient(conn)
	_, err = withAnswerTime(ctx, conn, c.hello)
	var reported *Error
	if err != nil && (!errors.As(err, &reported) || reported.Closes()) {
		return nil, err
	}
	return withAnswerTime(ctx, conn, func() (*Status, error) {
		return exchange[*Status](c, &protocol.StatusRequest{})
	})
}

// withAnswerTime runs talk on conn, and ends it when ctx does or when the generator has been
// silent for answerTime.
func withAnswerTime[T any](ctx context.Context, conn net.Conn, talk func() (T, error)) (T, error) {
	// SetDeadline fails only on a closed connection, and then talk fails too.
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	// A deadline in the past interrupts talk.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	result, err := talk()
	if !stop() {
		return result, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	return result, err
}
