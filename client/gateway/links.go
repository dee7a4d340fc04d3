package gateway

import (
	"context"
	"slices"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// borrow returns a connection for one request of a user. Users have connections of their own: the
// generator reads no further message of a connection while a long text of it waits.
func (b *backend) borrow(ctx context.Context, user string) (*link, error) {
	for {
		l, other := b.reuse(user)
		if l != nil {
			return l, nil
		}
		if other == nil {
			return b.connect(ctx, user)
		}
		select {
		case <-other.ended:
			if other.err != nil && !other.left {
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
func (b *backend) connect(ctx context.Context, user string) (*link, error) {
	c, err := b.dial(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[user]
	delete(b.attempts, user)
	a.err, a.left = err, ctx.Err() != nil
	close(a.ended)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, user: user, running: 1}
	b.links = append(b.links, l)
	return l, nil
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
	l.over = l.over || codeOf(err) == protocol.CodeDraining
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

// describe returns a connection that knows the generator's bounds and whether its model has a chat
// template. It wakes a generator that sleeps.
func (b *backend) describe(ctx context.Context) (*client.Client, error) {
	if c, err := b.reach(ctx); err == nil {
		return c, nil
	}
	c, err := b.dial(ctx)
	return b.keep(ctx, c, err)
}
