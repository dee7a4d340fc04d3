package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Generator is a generator that the gateway serves. Several of one Name are generators of one model.
type Generator struct {
	Name   string // of its model, for clients; empty: the model's own
	Socket string // path; empty: where package client looks
}

const (
	maxBackendConnections = 64                     // half of what the protocol gives a uid
	idleConnection        = time.Minute            // without a request, then it is closed
	tryAgain              = 500 * time.Millisecond // after a generator could not be reached
	loadTime              = 30 * time.Second       // to wait for a generator that loads
	busyTime              = 10 * time.Second       // to wait for one whose queue is full
	wakePause             = 50 * time.Millisecond  // between two attempts to reach one that loads
)

// backend is a generator with the connections to it.
type backend struct {
	o       Generator
	index   int          // among the generators of its model
	places  *places      // of all generators of its model
	running atomic.Int64 // requests that it has, or that connect to it

	mu       sync.Mutex
	links    []*link
	attempts map[string]*attempt // to connect, by user
	model    string              // as it was called last
	identity string              // that it said last; empty: unknown
	slots    int                 // of its batch; 0: unknown
	offered  int                 // places that it gives
	control  *client.Client
	failed   error     // of the last attempt to reach it for control
	at       time.Time // of that attempt
	down     time.Time // of the last connection for a request that failed; zero: it did not
	full     string    // the device on which its last start found no room; empty: it found some

	room *room // has other models leave that device
}

// lost reports whether a connection has ended.
func lost(c *client.Client) bool {
	select {
	case <-c.Lost():
		return true
	default:
		return false
	}
}

// options returns the options to dial with.
func (b *backend) options() client.Options { return client.Options{Socket: b.o.Socket} }

// dial connects. With o.NoWake it wakes no generator that sleeps, and has none leave its device; otherwise another one
// leaves if this one waits for room there.
func (b *backend) dial(ctx context.Context, o client.Options) (*client.Client, error) {
	c, err := client.Dial(ctx, o)
	if err == nil {
		b.learn(c)
		b.came()
	} else if !o.NoWake {
		err = b.crowded(ctx, err)
	}
	return c, err
}

// learn takes over what a generator says of itself.
func (b *backend) learn(c *client.Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.model, b.identity, b.slots, b.down = c.Model(), c.Identity(), c.Limits().MaxBatch, time.Time{}
	b.offer(c.Limits())
}

// offer gives as many places as the generator's bounds allow. b.mu is held.
func (b *backend) offer(l client.Limits) {
	n := min(maxBackendConnections*l.Requests, l.MaxBatch+l.Queue)
	b.places.grow(n - b.offered)
	b.offered = n
}

// live returns the connection for questions if there is one.
func (b *backend) live() *client.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control == nil || lost(b.control) {
		return nil
	}
	return b.control
}

// reach returns a connection for questions about the generator. It wakes none that sleeps.
func (b *backend) reach(ctx context.Context) (*client.Client, error) {
	if c := b.live(); c != nil {
		return c, nil
	}
	b.mu.Lock()
	failed, at := b.failed, b.at
	b.mu.Unlock()
	if failed != nil && time.Since(at) < tryAgain {
		return nil, failed
	}
	o := b.options()
	o.NoWake = true
	c, err := b.dial(ctx, o)
	return b.keep(ctx, c, err)
}

// describe returns a connection that knows the generator's bounds and whether its model has a chat
// template. It wakes a generator that sleeps, and waits for one that loads.
func (b *backend) describe(ctx context.Context) (*client.Client, error) {
	c, err := b.reach(ctx)
	if err == nil {
		return c, nil
	}
	if errors.Is(err, client.ErrSleeping) {
		b.wakes(ctx)
	}
	c, err = b.dial(ctx, b.options())
	for until := time.Now().Add(loadTime); b.comes(err) && time.Now().Before(until); {
		if !sleep(ctx, wakePause) {
			break
		}
		c, err = b.dial(ctx, b.options())
	}
	return b.keep(ctx, c, err)
}

// keep keeps the connection for questions, or the reason why there is none.
func (b *backend) keep(ctx context.Context, c *client.Client, err error) (*client.Client, error) {
	if err == nil {
		// A generator does not sleep while a new connection may have its first request on the way. This one has none.
		soon, stop := context.WithTimeout(ctx, identityTime)
		_, _ = c.Status(soon)
		stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			b.failed, b.at = err, time.Now()
		}
		return nil, err
	}
	if b.control != nil && !lost(b.control) {
		c.Close() // another request was faster
		return b.control, nil
	}
	b.control, b.failed = c, nil
	b.offer(c.Limits()) // it may have been missed meanwhile
	return c, nil
}

// known returns the model's name as a connection that still lives has said it.
func (b *backend) known() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control == nil || lost(b.control) {
		return ""
	}
	return b.model
}

// name returns the model's name. It is empty while the generator has never said it. The error says why
// the generator cannot be reached now.
func (b *backend) name(ctx context.Context) (string, error) {
	_, err := b.reach(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.model == "" && errors.Is(err, client.ErrSleeping) {
		if r := client.Record(b.options()); r != nil {
			b.model = r.Model
		}
	}
	return b.model, err
}

// status asks the generator for its status. It wakes none that sleeps.
func (b *backend) status(ctx context.Context) (*client.Status, error) {
	c, err := b.reach(ctx)
	if err != nil {
		return nil, err
	}
	return c.Status(ctx)
}

// ready reports whether the generator serves, or would be started by a request.
func (b *backend) ready(ctx context.Context) bool {
	status, err := b.status(ctx)
	return err == nil && status.State == protocol.StateReady || errors.Is(err, client.ErrSleeping)
}

// codeOf returns the code of an error that the generator sent, or "".
func codeOf(err error) string {
	var reported *client.Error
	if errors.As(err, &reported) {
		return reported.Code
	}
	return ""
}

// sleep waits for d, and reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
