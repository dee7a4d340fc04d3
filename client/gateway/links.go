package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"reel.internal/reel/client"
)

// link is a connection that carries the requests of a user.
type link struct {
	c        *client.Client
	user     string
	running  int
	since    time.Time // of the last request's end
	over     bool      // takes no further requests: its generator ends
	identity string    // of its generator; empty: unknown
	asked    time.Time // when the generator was asked for it last
}

// borrow returns a connection for one request of a user. Users have connections of their own: the
// generator reads no further message of a connection while a long text of it waits. With noWake a
// generator that sleeps is not woken: the error is [client.ErrSleeping].
func (b *backend) borrow(ctx context.Context, user string, noWake bool) (*link, error) {
	for {
		l, other := b.reuse(user)
		if l != nil {
			return l, nil
		}
		if other == nil {
			return b.connect(ctx, user, noWake)
		}
		select {
		case <-other.ended:
			if other.err != nil && !other.left && (noWake || !errors.Is(other.err, client.ErrSleeping)) {
				return nil, other.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// attempt is an attempt to connect for a user. Requests of the user that come meanwhile wait for it:
// otherwise each of a burst would make a connection.
type attempt struct {
	ended chan struct{}
	err   error // from here on once it has ended
	left  bool  // its request has ended before it
}

// connect ends the attempt that reuse has begun for the user.
func (b *backend) connect(ctx context.Context, user string, noWake bool) (*link, error) {
	o := b.options()
	o.NoWake = noWake
	c, err := b.dial(ctx, o)
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[user]
	delete(b.attempts, user)
	a.err, a.left = err, ctx.Err() != nil
	close(a.ended)
	if err != nil {
		b.missed(a)
		return nil, err
	}
	l := &link{c: c, user: user, running: 1, identity: c.Identity()}
	b.links = append(b.links, l)
	b.offer(c.Limits()) // it may have been missed meanwhile
	return l, nil
}

// missed notes that an attempt to connect has failed. A generator that has no connection any more gives no places:
// those who wait for one find theirs at others. b.mu is held.
func (b *backend) missed(a *attempt) {
	if !a.left {
		b.down = time.Now()
	}
	living := func(l *link) bool { return !lost(l.c) }
	if errors.Is(a.err, client.ErrNoGenerator) && !slices.ContainsFunc(b.links, living) &&
		(b.control == nil || lost(b.control)) {
		b.offer(client.Limits{})
	}
}

// reuse returns a connection of the user that has room, or the attempt that may give one. If both are
// nil, it has begun an attempt, and the caller is to connect.
func (b *backend) reuse(user string) (*link, *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.free(user); l != nil {
		l.running++
		return l, nil
	}
	if a := b.attempts[user]; a != nil {
		return nil, a
	}
	if b.attempts == nil {
		b.attempts = map[string]*attempt{}
	}
	b.attempts[user] = &attempt{ended: make(chan struct{})}
	return nil, nil
}

// free returns a connection of the user that has room, or nil. When there may be no more connections,
// those of others are used too. b.mu is held.
func (b *backend) free(user string) *link {
	b.links = slices.DeleteFunc(b.links, func(l *link) bool {
		if l.running == 0 && (l.over || lost(l.c) || time.Since(l.since) > idleConnection) {
			l.c.Close()
			return true
		}
		return false
	})
	full := len(b.links) >= maxBackendConnections
	var best *link
	for _, l := range b.links {
		mine := l.user == user
		if l.over || lost(l.c) || l.running >= l.c.Limits().Requests || !mine && !full {
			continue
		}
		if best == nil || mine && best.user != user || mine == (best.user == user) && l.running < best.running {
			best = l
		}
	}
	return best
}

// giveBack ends a request's use of a connection. err is how the request ended.
func (b *backend) giveBack(l *link, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if died(err) && !l.over {
		for _, one := range b.links { // a resumed request must not find one whose end is not noticed yet
			one.over = true
		}
	}
	l.running--
	l.since = time.Now()
}

// close closes all connections.
func (b *backend) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.links {
		l.c.Close()
	}
	if b.control != nil {
		b.control.Close()
	}
}

// identityTime bounds the wait for a generator's answer, and the time between two questions.
const identityTime = time.Second

// askIdentity asks the generator of a connection for its identity, if that is unknown and it was not
// asked just before. A generator does not know it until it has read its weights again.
func (b *backend) askIdentity(ctx context.Context, l *link) string {
	b.mu.Lock()
	known, due := l.identity, time.Since(l.asked) > identityTime
	if known == "" && due {
		l.asked = time.Now()
	}
	b.mu.Unlock()
	if known != "" || !due {
		return known
	}
	ctx, stop := context.WithTimeout(ctx, identityTime)
	defer stop()
	status, err := l.c.Status(ctx)
	if err != nil || status.Identity == "" {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.identity, b.identity = status.Identity, status.Identity
	return l.identity
}

// identityOf returns the identity of a connection's generator; empty: unknown.
func (b *backend) identityOf(l *link) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.identity
}
