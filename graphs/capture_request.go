package graphs

// captureRequest is a shape that steps missed, with what a graph of it would save.
type captureRequest struct {
	key    Key
	misses uint64 // steps that missed it; halved every decaySteps
	saved  int    // token rows that its own graph saves a step
}

// capturePolicy decides which missed shapes are captured and which graph gives way
// for them. It is data alone: it has no lock, reads no clock and calls no device.
// The pool's lock guards it.
type capturePolicy struct {
	requests map[Key]*captureRequest
	failures map[Key]int // captures of each key that failed
}

const (
	// admitAfter is the number of misses after which a shape may be captured. A
	// shape that came once may never come again.
	admitAfter = 2
	// maxFailures is the number of failed captures after which a shape is refused:
	// its steps run padded or eagerly from then on.
	maxFailures = 3
	// eagerRows is the cost of launching op by op, in token rows: more than any padding.
	eagerRows = 1 << 16
	// recentSteps is how long a replayed graph is safe from rarer requests.
	recentSteps = 64
	// decaySteps is the number of steps after which replays and misses are halved.
	decaySteps = 1024
)

func newCapturePolicy() capturePolicy {
	return capturePolicy{requests: map[Key]*captureRequest{}, failures: map[Key]int{}}
}

// miss records that a step of k ran without its own graph, which would have saved
// that many token rows. It reports whether k has just been missed often enough to
// be admitted. Shapes that failed too often are ignored.
func (p *capturePolicy) miss(k Key, saved int) bool {
	if p.failures[k] >= maxFailures {
		return false
	}
	r := p.requests[k]
	if r == nil {
		r = &captureRequest{key: k}
		p.requests[k] = r
	}
	r.misses++
	r.saved = saved
	return r.misses == admitAfter
}

// admit returns the request to capture next, or nil: of those worth a graph, the
// one with the largest predicted gain. The request stays until remove.
func (p *capturePolicy) admit() *captureRequest {
	var best *captureRequest
	for _, r := range p.requests {
		if r.worthCapture() && (best == nil || r.gain() > best.gain()) {
			best = r
		}
	}
	return best
}

// worthCapture reports whether r was missed often enough and its graph would save
// more than an eighth of its rows.
func (r *captureRequest) worthCapture() bool {
	return r.misses >= admitAfter && r.saved*8 > r.key.Tokens()
}

// gain returns the token rows that a graph would have saved since the first miss.
func (r *captureRequest) gain() uint64 { return r.misses * uint64(r.saved) }

// remove drops the request for k, if there is one.
func (p *capturePolicy) remove(k Key) { delete(p.requests, k) }

// fail counts a failed capture of k and drops its request.
func (p *capturePolicy) fail(k Key) {
	p.failures[k]++
	p.remove(k)
}

// refused returns the number of shapes that failed too often.
func (p *capturePolicy) refused() (n int) {
	for _, failures := range p.failures {
		if failures >= maxFailures {
			n++
		}
	}
	return n
}

// decay halves the misses of every request and drops those that reach 0, except keep.
func (p *capturePolicy) decay(keep *captureRequest) {
	for k, r := range p.requests {
		if r.misses /= 2; r.misses == 0 && r != keep {
			p.remove(k)
		}
	}
}

// use says how recently and how often a graph was replayed.
type use struct {
	lastStep uint64 // that replayed it, or after which it was installed
	replays  uint64 // halved every decaySteps
}

// before reports whether a graph of use u is evicted before one of use o: the least
// recently used first, then the least often used.
func (u use) before(o use) bool {
	return u.lastStep < o.lastStep || u.lastStep == o.lastStep && u.replays < o.replays
}

// mayEvict reports whether a graph of use u gives way to r at step: it was not
// replayed lately, or less often than r was missed.
func (r *captureRequest) mayEvict(u use, step uint64) bool {
	return step-u.lastStep >= recentSteps || u.replays < r.misses
}
