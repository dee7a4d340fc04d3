package graphs

import (
	"errors"
	"runtime"
	"time"

	"reel/kernels/device"
)

// wish is a key that a step missed.
type wish struct {
	key   Key
	count uint64 // steps that missed it, decayed
	saved int    // token rows that one step would save
}

// eagerRows is what launching op by op costs, in token rows: more than any padding.
const eagerRows = 1 << 16

// grantAfter is how often a key must be missed to be captured: what comes once
// may never come again.
const grantAfter = 2

// wish notes that a step of k ran on g, or eagerly where g is nil.
func (p *Pool) wish(k Key, g *graph) {
	if p.failures[k] >= maxFailures || p.opts.MaxGraphs == 0 || p.coming(k) {
		return
	}
	w := p.wishes[k]
	if w == nil {
		w = &wish{key: k}
		p.wishes[k] = w
	}
	w.count++
	w.saved = eagerRows
	if g != nil {
		w.saved = g.key.Tokens() - k.Tokens()
	}
	if w.count == grantAfter {
		p.changed.Broadcast()
	}
}

// coming tells whether a graph of k is being captured, or waits to be installed.
func (p *Pool) coming(k Key) bool {
	return p.pending > 0 && p.making == k || p.finished != nil && p.finished.key == k
}

// grant is the wish of the largest predicted gain, or nil. Padding of less than
// an eighth is not worth a graph.
func (p *Pool) grant() *wish {
	var best *wish
	gain := func(w *wish) uint64 { return w.count * uint64(w.saved) }
	for _, w := range p.wishes {
		worth := w.count >= grantAfter && w.saved*8 > w.key.Tokens()
		if worth && (best == nil || gain(w) > gain(best)) {
			best = w
		}
	}
	return best
}

// Roller captures what was wished for, on a thread and a stream of its own. It
// executes no graph, and while sequences run it makes at most one device call a
// step and leaves most of the time to them.
type Roller struct {
	pool *Pool
	dev  streams
}

// streams is what a roller needs of a device.
type streams interface {
	NewStream() (device.Stream, error)
}

// NewRoller makes the roller of a pool.
func NewRoller(p *Pool, dev streams) *Roller { return &Roller{pool: p, dev: dev} }

// Run rolls until Stop, or until the device is lost.
func (r *Roller) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := r.dev.NewStream()
	if err != nil {
		return err
	}
	defer r.pool.say("off")
	for {
		dead, k, ok := r.pool.await()
		if !ok {
			return r.leave(s)
		}
		if err := r.work(s, dead, k); errors.Is(err, device.ErrSticky) {
			return err
		}
	}
}

// leave gives the stream back, on a device that is not lost.
func (r *Roller) leave(s device.Stream) error {
	if r.pool.isLost() {
		return nil
	}
	return s.Destroy()
}

// work destroys dead, or where that is nil captures k.
func (r *Roller) work(s device.Stream, dead *graph, k Key) error {
	if dead != nil {
		r.pool.say("destroying " + dead.key.String())
		return r.pace(func() error { return r.pool.destroy(dead) })
	}
	r.pool.say("capturing " + k.String())
	g, err := r.pool.capture(s, k, r.timed)
	r.pool.captured(k, g, err)
	return err
}

// timed is pace, and counts how long a capture's calls take.
func (r *Roller) timed(call func() error) error {
	return r.pace(func() error {
		begun := time.Now()
		err := call()
		r.pool.rolledFor(time.Since(begun))
		return err
	})
}

func (p *Pool) rolledFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.RollTime += d
}

// Stop has Run return after the call it is in.
func (r *Roller) Stop() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.pool.stopped = true
	r.pool.changed.Broadcast()
}

// Abandon has Run return without a further device call: the device is lost.
func (r *Roller) Abandon() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.pool.stopped, r.pool.lost = true, true
	r.pool.changed.Broadcast()
}

func (p *Pool) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// await waits for something to destroy, or for a wish that is granted and fits.
// A wish that does not fit has the engine asked for an eviction.
func (p *Pool) await() (dead *graph, k Key, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped {
		if len(p.dead) > 0 {
			dead, p.dead = p.dead[0], p.dead[1:]
			return dead, k, true
		}
		if w := p.grant(); w != nil && p.finished == nil {
			if p.fits() {
				p.pending++
				p.making = w.key
				delete(p.wishes, w.key)
				return nil, w.key, true
			}
			p.ask(w)
		}
		p.stats.Roller = "waiting"
		p.changed.Wait()
	}
	return nil, k, false
}

// ask has the next Maintain evict for w, once: while an evicted graph waits for its
// last step, that is the room.
func (p *Pool) ask(w *wish) {
	if p.room != nil || len(p.retiring) > 0 {
		return
	}
	p.room = w
	if p.opts.Wake != nil {
		p.opts.Wake()
	}
}

// captured hands a new graph to the engine, or counts the failure.
func (p *Pool) captured(k Key, g *graph, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending--
	if err != nil {
		p.fail(k, err)
		return
	}
	g.rolled = true
	p.finished = g
	p.stats.Rolled++
	if p.opts.Wake != nil {
		p.opts.Wake()
	}
}

func (p *Pool) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Roller = what
}

// pace runs call when the pacer allows it, and tells it how long that took.
func (r *Roller) pace(call func() error) error {
	p := r.pool
	p.mu.Lock()
	for !p.stopped && !p.pacer.allows() {
		p.changed.Wait()
	}
	lost := p.lost
	p.mu.Unlock()
	if lost {
		return device.ErrSticky
	}
	begun := time.Now()
	err := call()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pacer.took(time.Since(begun))
	return err
}

// pacer keeps the roller out of the way of steps: after a call that took d, it
// waits for one step, and for as many as take restShare times d.
type pacer struct {
	step     uint64 // launched last
	next     uint64 // step from which the next call is allowed
	running  bool
	seen     time.Time
	stepTime time.Duration // moving average
}

// restShare is how much longer the roller rests than it works while sequences run.
const restShare = 4

func (c *pacer) allows() bool { return !c.running || c.step >= c.next }

// tended notes that the engine has come to step, and how long steps take.
func (c *pacer) tended(step uint64, running bool, now time.Time) {
	if n := step - c.step; running && c.running && n > 0 {
		each := now.Sub(c.seen) / time.Duration(n)
		c.stepTime += (each - c.stepTime) / 8
	}
	if step != c.step || running != c.running {
		c.step, c.running, c.seen = step, running, now
	}
}

func (c *pacer) took(d time.Duration) {
	c.next = c.step + 1
	if c.stepTime > 0 {
		c.next += uint64(restShare * d / c.stepTime)
	}
}
