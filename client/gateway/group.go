package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"reel.internal/reel/client"
)

// maxGenerators bounds the generators of one model.
const maxGenerators = 64

// group is a model with the generators that serve it, usually one.
type group struct {
	name     string // of the settings; empty: that of the only generator's model
	list     []*backend
	places   *places
	suspects *places   // the one place of requests that ran at several deaths
	routed   *prefixes // where prompts went; nil with one generator
	counts   groupCounts
	choosing sync.Mutex    // held while a generator is chosen
	restart  time.Duration // to wait for a generator that died
	// lostAt is when a generator died last with requests of ours, refused one because it stops, or was woken, in Unix
	// nanoseconds.
	lostAt atomic.Int64
}

// groupCounts are what metrics tell of a group.
type groupCounts struct {
	byPrefix, byLoad    atomic.Uint64 // requests that went where their prefix did, or to the least busy
	resumed, notResumed atomic.Uint64 // after a death: requests that went on, or ended with an error
}

// newGroup returns a model without generators. waits bounds the requests that wait for one.
func newGroup(name string, waits *shares) *group {
	return &group{name: name, places: newPlaces(waits), suspects: newSuspects(), restart: restartTime}
}

// add adds a generator of the model and returns it.
func (g *group) add(o Generator) *backend {
	b := &backend{o: o, index: len(g.list), places: g.places}
	g.list = append(g.list, b)
	if len(g.list) > 1 && g.routed == nil {
		g.routed = newPrefixes(maxPrefixes)
	}
	return b
}

// known returns the model's name for clients if the settings give it, or a connection that still lives.
func (g *group) known() string {
	if g.name != "" {
		return g.name
	}
	return g.list[0].known()
}

// called returns the model's name for clients. It is empty while its generator has never said it. The
// error says why the generator cannot be reached now.
func (g *group) called(ctx context.Context) (string, error) {
	if g.name != "" {
		return g.name, nil
	}
	return g.list[0].name(ctx)
}

// reach returns a connection for questions about the model, to the first generator that answers. It
// wakes none that sleeps.
func (g *group) reach(ctx context.Context) (*client.Client, error) {
	return g.first(func(b *backend) (*client.Client, error) { return b.reach(ctx) })
}

// describe returns a connection that knows the bounds of a generator and whether its model has a chat
// template. It wakes one that sleeps, and waits for one that loads or that has just died.
func (g *group) describe(ctx context.Context) (*client.Client, error) {
	for {
		c, err := g.reach(ctx)
		if err == nil {
			return c, nil
		}
		if errors.Is(err, client.ErrSleeping) {
			g.lostAt.Store(time.Now().UnixNano())
		}
		c, err = g.first(func(b *backend) (*client.Client, error) { return b.describe(ctx) })
		if err == nil || !away(err) || errors.Is(err, errStays) || !g.comesBack() || !sleep(ctx, maxPause) {
			return c, err
		}
	}
}

// first returns the answer of the first generator that gives one, those that are connected before
// others. Otherwise the error is that of the first.
func (g *group) first(ask func(*backend) (*client.Client, error)) (*client.Client, error) {
	for _, b := range g.list {
		if c := b.live(); c != nil {
			return c, nil
		}
	}
	var failed error
	for _, b := range g.list {
		c, err := ask(b)
		if err == nil {
			return c, nil
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, failed
}

// comesBack reports whether a generator died, stopped or was woken so short a time ago that it may still be started.
func (g *group) comesBack() bool {
	return time.Since(time.Unix(0, g.lostAt.Load())) < g.restart
}

// sharedIdentity returns the identity that all generators of the model have, or nothing where one is unknown
// or another.
func (g *group) sharedIdentity() (common string) {
	for i, b := range g.list {
		b.mu.Lock()
		one := b.identity
		b.mu.Unlock()
		if i > 0 && one != common {
			return ""
		}
		common = one
	}
	return common
}

// statuses asks all generators at once. Those that do not answer are left out; the error is that of the
// first, if none answers.
func (g *group) statuses(ctx context.Context) (list []*client.Status, err error) {
	answers, errs := make([]*client.Status, len(g.list)), make([]error, len(g.list))
	var all sync.WaitGroup
	for i, b := range g.list {
		all.Go(func() { answers[i], errs[i] = b.status(ctx) })
	}
	all.Wait()
	for _, s := range answers {
		if s != nil {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, errs[0]
	}
	return list, nil
}

// status returns the status of the first generator that answers, with the requests, KV pages and memory of
// all. It wakes none that sleeps.
func (g *group) status(ctx context.Context) (*client.Status, error) {
	list, err := g.statuses(ctx)
	if err != nil {
		return nil, err
	}
	sum := *list[0]
	sum.Memory = sum.Memory[:len(sum.Memory):len(sum.Memory)]
	for _, s := range list[1:] {
		sum.Requests.Running += s.Requests.Running
		sum.Requests.Waiting += s.Requests.Waiting
		sum.KV.Pages += s.KV.Pages
		sum.KV.Used += s.KV.Used
		sum.Memory = append(sum.Memory, s.Memory...)
	}
	return &sum, nil
}

// ready returns how many generators serve, or would be started by a request.
func (g *group) ready(ctx context.Context) (n int) {
	var ready atomic.Int64
	var all sync.WaitGroup
	for _, b := range g.list {
		all.Go(func() {
			if b.ready(ctx) {
				ready.Add(1)
			}
		})
	}
	all.Wait()
	return int(ready.Load())
}

// close closes all connections.
func (g *group) close() {
	for _, b := range g.list {
		b.close()
	}
}
