package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// load is one level of load on one target, for a while.
type load struct {
	target         Target
	works          *works
	warmup, length time.Duration
	drain          time.Duration // after the end, for what was begun before it

	begin, end time.Time // of what is measured
	mu         sync.Mutex
	all        []Completion
}

func newLoad(t Target, w *works, o *LoadOptions) *load {
	return &load{target: t, works: w, warmup: o.Warmup, length: o.Duration, drain: o.Drain}
}

// start sets the times, and bounds ctx by the end of the drain.
func (l *load) start(ctx context.Context) (context.Context, context.CancelFunc) {
	l.begin = time.Now().Add(l.warmup)
	l.end = l.begin.Add(l.length)
	return context.WithDeadline(ctx, l.end.Add(l.drain))
}

// one makes a completion that is due at due.
func (l *load) one(ctx context.Context, due time.Time) error {
	c := measure(ctx, l.target, l.works.next(), due)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
	return c.Err
}

// afterError is how long a client waits after a failure, so that a server that
// refuses is not asked a million times.
const afterError = 20 * time.Millisecond

// closed has n clients ask again as soon as they were answered.
func (l *load) closed(ctx context.Context, n int) {
	ctx, cancel := l.start(ctx)
	defer cancel()
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil && time.Now().Before(l.end) {
				if l.one(ctx, time.Now()) != nil {
					pause(ctx, afterError)
				}
			}
		})
	}
	clients.Wait()
}

// open sends rate requests a second, at times that are drawn before anything is
// measured: a server that stalls does not hold up those that come after, and
// what it makes wait is counted from when it was due (no coordinated omission).
func (l *load) open(ctx context.Context, rate float64, seed uint64) {
	ctx, cancel := l.start(ctx)
	defer cancel()
	random := rand.New(rand.NewPCG(seed, 2))
	var requests sync.WaitGroup
	due := time.Now()
	for {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if !due.Before(l.end) || ctx.Err() != nil {
			break
		}
		pause(ctx, time.Until(due))
		at := due
		requests.Go(func() { _ = l.one(ctx, at) }) // a failure is in what it recorded
	}
	requests.Wait()
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// parts is into how many slices of its time a load is cut to see its noise.
const parts = 5

// sums are what a row is made of.
type sums struct {
	ttft, tpot, itl, e2e *Recorder
	part                 [parts][]float64 // TTFT by when a request was due, milliseconds
	good                 int
}

// row sums up what was due between begin and end. Tokens count by when they
// came, whenever their request was due.
func (l *load) row(slo SLO) LoadRow {
	r := LoadRow{Target: l.target.Name(), WarmupS: l.warmup.Seconds(), Slices: make([]Slice, parts)}
	s := sums{ttft: NewRecorder(), tpot: NewRecorder(), itl: NewRecorder(), e2e: NewRecorder()}
	for i := range l.all {
		c := &l.all[i]
		l.count(&r, c)
		if c.Due.Before(l.begin) {
			r.Warmups++
			continue
		}
		r.Requests++
		l.add(&r, &s, c)
		if slo.met(c) {
			s.good++
		}
	}
	r.TTFT, r.TPOT, r.ITL, r.E2E = s.ttft.Summary(), s.tpot.Summary(), s.itl.Summary(), s.e2e.Summary()
	if slo != (SLO{}) {
		r.GoodputPerS = new(float64(s.good) / l.length.Seconds())
	}
	for i := range s.part {
		r.Slices[i].TTFTP50 = median(s.part[i])
	}
	return r
}

// add counts a request that was due while it was measured.
func (l *load) add(r *LoadRow, s *sums, c *Completion) {
	if c.Err == nil || cutOff(c.Err) { // what was cut off before its first token has waited so long at least
		s.ttft.Add(c.TTFT())
		at := l.slice(c.Due)
		s.part[at] = append(s.part[at], milliseconds(c.TTFT()))
	}
	if c.Err != nil {
		r.fail(c.Err)
		return
	}
	for _, gap := range c.Gaps() {
		s.itl.Add(gap)
	}
	s.tpot.Add(c.TPOT())
	s.e2e.Add(c.End)
	add(&r.Graphs, c.Graphs)
}

// slice is the part of the measured time in which t lies.
func (l *load) slice(t time.Time) int {
	return int(min(parts-1, parts*t.Sub(l.begin)/l.length))
}

// count adds c to the rates: what came while it was measured.
func (l *load) count(r *LoadRow, c *Completion) {
	within := func(d time.Duration) bool {
		t := c.Due.Add(d)
		return !t.Before(l.begin) && t.Before(l.end)
	}
	if c.Err == nil && within(c.End) {
		r.RequestsPerS += 1 / l.length.Seconds()
	}
	each := 1.0 // tokens of a piece
	if len(c.Arrivals) > 0 && c.Tokens > 0 {
		each = float64(c.Tokens) / float64(len(c.Arrivals))
	}
	for _, d := range c.Arrivals {
		if within(d) {
			r.TokensPerS += each / l.length.Seconds()
			r.Slices[l.slice(c.Due.Add(d))].TokensPerS += each * parts / l.length.Seconds()
		}
	}
}

// cutOff tells whether a request was still under way when its level's time was over.
func cutOff(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// fail counts a request that failed, by why.
func (r *LoadRow) fail(err error) {
	r.Failed++
	if r.Failures == nil {
		r.Failures = map[string]int{}
	}
	why := err.Error()
	if cutOff(err) {
		why = "not finished at the end"
	}
	r.Failures[why]++
}
