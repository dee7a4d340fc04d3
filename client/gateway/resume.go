package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const (
	maxResumes  = 3                     // of a request; the next death ends it
	suspectAt   = 2                     // deaths after which a request is resumed apart from others like it
	restartTime = time.Minute           // to wait for a generator that died
	firstPause  = 20 * time.Millisecond // before a further attempt; doubles each time
	maxPause    = 200 * time.Millisecond
)

// errOtherTokens ends an answer whose generator died and that no other one can take up.
var errOtherTokens = &apiError{status: http.StatusServiceUnavailable, code: "not_resumed", retry: 1,
	message: "the generator ended in the middle of this answer, and the one in its place gives other tokens (ask again)"}

// newSuspects returns the place of requests that ran at several deaths. All may wait for it: they have
// places at the generators.
func newSuspects() *places { return newPlaces(newShares(math.MaxInt64)) }

// generate runs a request of a user, as [client.Client.Generate] does. It waits for a place, repeats a
// request that no generator could take, and resumes one whose generator died.
func (g *group) generate(ctx context.Context, user string, req client.Request) iter.Seq2[client.Token, error] {
	req.User = user
	if req.Seed == nil {
		req.Seed = new(rand.Uint64()) // so that the request gives the same tokens again
	}
	return func(yield func(client.Token, error) bool) {
		if err := g.places.take(ctx, user); err != nil {
			yield(client.Token{}, err)
			return
		}
		defer g.places.give(user)
		r := run{group: g, user: user, req: req, yield: yield}
		if err := r.toItsEnd(ctx); err != nil {
			yield(client.Token{}, err)
		}
	}
}

// run is a request on its way through the generators of a model.
type run struct {
	*group
	user  string
	req   client.Request
	yield func(client.Token, error) bool
	embed func(c *client.Client) error // asks for a vector; then req is its prompt alone, and there are no tokens

	marks    []uint64 // of its prompt; see prefixes
	byPrefix bool     // the prompt's prefix has chosen the generator

	sent     []int32   // ids of the tokens that the client has
	begun    time.Time // of the last attempt that a generator took
	deaths   int       // that it ran at
	last     *backend  // whose tokens the client has
	identity string    // of that generator; empty: unknown
	context  int       // that generator's limit
}

// toItsEnd runs the request, as often as its generators die and it may be resumed.
func (r *run) toItsEnd(ctx context.Context) error {
	start := time.Now()
	r.marks = r.routed.marks(&r.req)
	for {
		taken, err := r.attempt(ctx)
		if !taken || !died(err) || r.deaths == maxResumes || ctx.Err() != nil {
			r.ended(start, err)
			return err
		}
		r.deaths++
		r.lostAt.Store(time.Now().UnixNano())
		if r.deaths == suspectAt {
			if err := r.suspects.take(ctx, r.user); err != nil {
				r.ended(start, err)
				return err
			}
			defer r.suspects.give(r.user)
		}
	}
}

// ended counts a request that ran at a death and has ended since, and adds to its time what deaths took.
func (r *run) ended(start time.Time, err error) {
	switch {
	case r.deaths == 0:
	case err != nil:
		r.counts.notResumed.Add(1)
	default:
		r.counts.resumed.Add(1)
		if d := r.req.Done; d != nil {
			d.Timing.TotalMS += float64(r.begun.Sub(start)) / float64(time.Millisecond)
		}
	}
}

// attempt has the request run on a generator. While none takes it, it tries again as long as the errors
// deserve; then taken is false.
func (r *run) attempt(ctx context.Context) (taken bool, err error) {
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		taken, err = r.once(ctx)
		if taken || time.Since(begin)+pause > r.patience(err) || !sleep(ctx, pause) {
			return taken, err
		}
	}
}

// patience returns for how long a request is tried again that no generator takes because of err.
func (r *run) patience(err error) time.Duration {
	code := codeOf(err)
	switch {
	case !busy(code) && !away(err) && (r.deaths == 0 || !noRoom(err)):
		return 0
	case r.deaths > 0 || away(err) && r.comesBack():
		return r.restart
	case code == protocol.CodeLoading:
		return loadTime
	case code != "":
		return busyTime // one that drains may be one that goes to sleep: the next connection wakes it
	}
	return 0
}

// busy reports whether a generator refuses with a code what it may soon take.
func busy(code string) bool {
	switch code {
	case protocol.CodeBusy, protocol.CodeTooManyRequests, protocol.CodeTooManyConnections, protocol.CodeOverloaded:
		return true
	}
	return false
}

// away reports whether err means that a generator is not there, and may come back.
func away(err error) bool {
	switch codeOf(err) {
	case protocol.CodeDraining, protocol.CodeLoading, protocol.CodeShutdown, protocol.CodeDeviceFailed:
		return true
	}
	return errors.Is(err, client.ErrNoGenerator)
}

// noRoom reports whether err means that other models or programs are on the generator's device. One may have come there
// when the generator died.
func noRoom(err error) bool {
	var own *apiError
	return codeOf(err) == protocol.CodeGPUBusy || errors.As(err, &own) && own.code == protocol.CodeGPUBusy
}

// died reports whether err, which ended a request that a generator had, means that the generator ended.
func died(err error) bool {
	switch codeOf(err) {
	case protocol.CodeShutdown, protocol.CodeDeviceFailed, protocol.CodeDraining, protocol.CodeLoading:
		return true
	case "":
		return errors.Is(err, client.ErrConnectionLost) && cut(err)
	}
	return false
}

// cut reports whether a connection was lost because the other side ended, and not for what it sent.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrDeadlineExceeded)
}

// once has the request run on the best generator that takes it. taken is false if none does. Of several
// generators those that sleep are woken if no other one takes it.
func (r *run) once(ctx context.Context) (taken bool, err error) {
	taken, err = r.round(ctx, len(r.list) > 1)
	if !taken && errors.Is(err, client.ErrSleeping) {
		return r.round(ctx, false)
	}
	return taken, err
}

// round offers the request to the generators in turn, the best first. If none takes it, the error is that
// of one that sleeps, or else the one that deserves the most patience.
func (r *run) round(ctx context.Context, noWake bool) (taken bool, err error) {
	var tried uint64
	for b := r.choose(tried); b != nil; b = r.choose(tried) {
		tried |= 1 << b.index
		taken, one := r.on(ctx, b, noWake)
		if taken || ctx.Err() != nil {
			return taken, one
		}
		if err == nil || errors.Is(one, client.ErrSleeping) ||
			!errors.Is(err, client.ErrSleeping) && r.patience(one) > r.patience(err) {
			err = one
		}
	}
	return false, err
}

// on runs the request on a generator that choose has returned. taken is false if it did not get there or was
// refused for now.
func (r *run) on(ctx context.Context, b *backend, noWake bool) (taken bool, err error) {
	defer func() {
		b.running.Add(-1)
		if codeOf(err) == protocol.CodeDraining { // it may go to sleep, and the next connection wakes it
			r.lostAt.Store(time.Now().UnixNano())
		}
	}()
	l, err := b.borrow(ctx, r.user, noWake)
	if err != nil {
		return false, err
	}
	defer func() { b.giveBack(l, err) }()
	if len(r.sent) > 0 && !r.mayResume(ctx, b, l) {
		return false, errOtherTokens
	}
	r.went(b)
	if len(r.list) > 1 && b.identityOf(l) == "" {
		go b.askIdentity(context.Background(), l) // it is unknown for a while, and cannot be asked after a death
	}
	r.begun = time.Now()
	n, err := r.tokens(ctx, b, l)
	return n > 0 || !later(err), err
}

// later reports whether a generator has refused a request that it, or another one, may soon take.
func later(err error) bool {
	code := codeOf(err)
	return busy(code) || code == protocol.CodeDraining && !errors.Is(err, client.ErrConnectionLost)
}

// mayResume reports whether a generator gives the tokens that the client has: it has the identity of the
// one that gave them, or serves in its place. The context is no part of an identity, and ends answers.
func (r *run) mayResume(ctx context.Context, b *backend, l *link) bool {
	if l.c.Limits().Context != r.context {
		return false
	}
	if one := b.askIdentity(ctx, l); one != "" && r.identity != "" {
		return one == r.identity
	}
	return b == r.last
}

// tokens runs the request on a connection, and yields the tokens that the client does not have yet. It returns
// the number of tokens that came.
func (r *run) tokens(ctx context.Context, b *backend, l *link) (n int, err error) {
	if r.embed != nil {
		return 0, r.embed(l.c)
	}
	defer func() {
		if n > 0 && n >= len(r.sent) { // the client's tokens are this generator's
			r.last, r.context = b, l.c.Limits().Context
			r.identity = cmp.Or(b.identityOf(l), r.identity)
		}
	}()
	for t, err := range l.c.Generate(ctx, r.req) {
		if err != nil {
			return n, err
		}
		if n++; n > len(r.sent) {
			r.sent = append(r.sent, t.Token)
			if !r.yield(t, nil) {
				return n, nil
			}
		} else if t.Token != r.sent[n-1] {
			return n, errOtherTokens
		}
	}
	if n < len(r.sent) {
		return n, errOtherTokens
	}
	return n, nil
}
