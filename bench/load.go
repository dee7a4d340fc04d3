package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// load is one level of load on one target.
type load struct {
	target         Target
	works          *workSource
	warmup, length time.Duration
	drain          time.Duration // time after the end for requests begun before it

	begin, end time.Time // of the measured time
	mu         sync.Mutex
	all        []Completion
}

func newLoad(t Target, w *workSource, o *LoadOptions) *load {
	return &load{target: t, works: w, warmup: o.Warmup, length: o.Duration, drain: o.Drain}
}

// start sets the times, and returns ctx with the end of the drain as its deadline.
func (l *load) start(ctx context.Context) (context.Context, context.CancelFunc) {
	l.begin = time.Now().Add(l.warmup)
	l.end = l.begin.Add(l.length)
	return context.WithDeadline(ctx, l.end.Add(l.drain))
}

// one makes a completion that should be sent at due.
func (l *load) one(ctx context.Context, due time.Time) error {
	c := measure(ctx, l.target, l.works.next(), due)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
	return c.Err
}

// errorPause is a client's pause after a failure, so that it does not flood a server that
// refuses requests.
const errorPause = 20 * time.Millisecond

// closed runs n clients, each of which sends a request as soon as the previous one ended.
func (l *load) closed(ctx context.Context, n int) {
	ctx, cancel := l.start(ctx)
	defer cancel()
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil && time.Now().Before(l.end) {
				if l.one(ctx, time.Now()) != nil {
					pause(ctx, errorPause)
				}
			}
		})
	}
	clients.Wait()
}

// open sends rate requests per second, at times drawn in advance: a server that stalls does
// not delay later requests, and a request's time counts from when it was due (no
// coordinated omission).
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
		requests.Go(func() { _ = l.one(ctx, at) }) // l records failures
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

// parts is the number of slices of a load's time, in which its noise shows.
const parts = 5

// rowSamples collects the samples of a row.
type rowSamples struct {
	ttft, tpot, itl, e2e *Recorder
	part                 [parts][]float64 // TTFT in milliseconds, by the slice in which a request was due
	good, average        int              // requests that kept every bound, and that kept them with the mean of their gaps
}

// row computes the row of the requests that were due between begin and end. Tokens count
// by their arrival, regardless of when their request was due.
func (l *load) row(slo SLO) LoadRow {
	r := LoadRow{Target: l.target.Name(), WarmupS: l.warmup.Seconds(), Slices: make([]Slice, parts)}
	s := rowSamples{ttft: NewRecorder(), tpot: NewRecorder(), itl: NewRecorder(), e2e: NewRecorder()}
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
		if slo.onAverage().met(c) {
			s.average++
		}
	}
	r.TTFT, r.TPOT, r.ITL, r.E2E = s.ttft.Summary(), s.tpot.Summary(), s.itl.Summary(), s.e2e.Summary()
	if slo != (SLO{}) {
		r.Good, r.GoodOnAverage = s.good, s.average
		r.GoodputPerS = new(float64(s.good) / l.length.Seconds())
	}
	for i := range s.part {
		r.Slices[i].TTFTP50 = median(s.part[i])
	}
	return r
}

// add adds a request that was due in the measured time.
func (l *load) add(r *LoadRow, s *rowSamples, c *Completion) {
	// A request that was cut off before its first token has waited at least that long.
	if c.Err == nil || cutOff(c.Err) {
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
	r.CachedTokens += c.CachedTokens
}

// slice returns the index of the slice that contains t.
func (l *load) slice(t time.Time) int {
	return int(min(parts-1, parts*t.Sub(l.begin)/l.length))
}

// count adds c to the rates, as far as it falls in the measured time.
func (l *load) count(r *LoadRow, c *Completion) {
	within := func(d time.Duration) bool {
		t := c.Due.Add(d)
		return !t.Before(l.begin) && t.Before(l.end)
	}
	if c.Err == nil && within(c.End) {
		r.RequestsPerS += 1 / l.length.Seconds()
	}
	each := 1.0 // tokens per piece
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

// cutOff reports whether a request was still running at the end of the drain.
func cutOff(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// fail counts a failed request by its error.
func (r *LoadRow) fail(err error) {
	r.Failed++
	if r.Failures == nil {
		r.Failures = map[string]int{}
	}
	cause := err.Error()
	if cutOff(err) {
		cause = "not finished at the end"
	}
	r.Failures[cause]++
}
