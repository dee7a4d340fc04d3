package gateway

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Generator is a generator that the gateway serves.
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
)

// backend is a generator with the connections to it.
type backend struct {
	o      Generator
	places *places

	mu       sync.Mutex
	links    []*link
	attempts map[string]*attempt // to connect, by user
	model    string              // as it was called last
	control  *client.Client
	failed   error     // of the last attempt to reach it for control
	at       time.Time // of that attempt
}

// link is a connection that carries the requests of a user.
type link struct {
	c       *client.Client
	user    string
	running int
	since   time.Time // of the last request's end
	over    bool      // takes no further requests: its generator drains
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

// dial connects. It waits for a generator that loads.
func (b *backend) dial(ctx context.Context) (*client.Client, error) {
	o := b.options()
	c, err := client.Dial(ctx, o)
	if codeOf(err) == protocol.CodeLoading {
		o.Wait = loadTime
		c, err = client.Dial(ctx, o)
	}
	if err == nil {
		b.learn(c)
	}
	return c, err
}

// learn takes over what a generator says of itself.
func (b *backend) learn(c *client.Client) {
	l := c.Limits()
	b.places.resize(min(maxBackendConnections*l.Requests, l.MaxBatch+l.Queue))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.model = c.Model()
}

// reach returns a connection for questions about the generator. It wakes none that sleeps.
func (b *backend) reach(ctx context.Context) (*client.Client, error) {
	b.mu.Lock()
	c, failed, at := b.control, b.failed, b.at
	b.mu.Unlock()
	if c != nil && !lost(c) {
		return c, nil
	}
	if failed != nil && time.Since(at) < tryAgain {
		return nil, failed
	}
	o := b.options()
	o.NoWake = true
	c, err := client.Dial(ctx, o)
	if err == nil {
		b.learn(c)
	}
	return b.keep(ctx, c, err)
}

// keep keeps the connection for questions, or the reason why there is none.
func (b *backend) keep(ctx context.Context, c *client.Client, err error) (*client.Client, error) {
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
	return c, nil
}

// known returns the model's name for clients if the settings give it, or a connection that still lives.
func (b *backend) known() string {
	if b.o.Name != "" {
		return b.o.Name
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.control == nil || lost(b.control) {
		return ""
	}
	return b.model
}

// name returns the model's name for clients. It is empty while the generator has never said it. The
// error says why the generator cannot be reached now.
func (b *backend) name(ctx context.Context) (string, error) {
	if b.o.Name != "" {
		return b.o.Name, nil
	}
	_, err := b.reach(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
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

// generate runs a request of a user, as [client.Client.Generate] does. It waits for a place, and
// repeats a request that the generator could not take.
func (b *backend) generate(ctx context.Context, user string, req client.Request) iter.Seq2[client.Token, error] {
	req.User = user
	return func(yield func(client.Token, error) bool) {
		if err := b.places.take(ctx, user); err != nil {
			yield(client.Token{}, err)
			return
		}
		defer b.places.give(user)
		until := time.Now().Add(busyTime)
		for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			begun, err := b.once(ctx, user, req, yield)
			if err == nil {
				return
			}
			if begun || !mayRepeat(err) || time.Now().Add(pause).After(until) || !sleep(ctx, pause) {
				yield(client.Token{}, err)
				return
			}
		}
	}
}

// codeOf returns the code of an error that the generator sent, or "".
func codeOf(err error) string {
	var reported *client.Error
	if errors.As(err, &reported) {
		return reported.Code
	}
	return ""
}

// mayRepeat reports whether a request that was refused with err may soon be taken. A generator that
// drains may be one that goes to sleep: the next connection wakes it.
func mayRepeat(err error) bool {
	switch codeOf(err) {
	case protocol.CodeBusy, protocol.CodeTooManyRequests, protocol.CodeTooManyConnections, protocol.CodeOverloaded,
		protocol.CodeDraining:
		return true
	}
	return false
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

// once runs req on one connection. begun means that a token has been yielded, or the loop left.
func (b *backend) once(
	ctx context.Context, user string, req client.Request, yield func(client.Token, error) bool,
) (begun bool, err error) {
	l, err := b.borrow(ctx, user)
	if err != nil {
		return false, err
	}
	defer func() { b.giveBack(l, err) }()
	for token, err := range l.c.Generate(ctx, req) {
		if err != nil {
			return begun, err
		}
		begun = true
		if !yield(token, nil) {
			return true, nil
		}
	}
	return begun, nil
}
