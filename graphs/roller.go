package graphs

import (
	"errors"
	"runtime"
	"time"

	"reel.internal/reel/kernels/device"
)

// Roller captures admitted requests and destroys retired graphs, on a thread and a
// stream of its own. It replays no graph. While sequences run, it makes at most one
// device call a step and leaves most of the time to them.
type Roller struct {
	pool *Pool
	dev  streams
}

// streams is the part of a device that the roller needs.
type streams interface {
	NewStream() (device.Stream, error)
}

// NewRoller makes the roller of a pool.
func NewRoller(p *Pool, dev streams) *Roller { return &Roller{pool: p, dev: dev} }

// Run works until Stop, or until the device is lost; then the error is
// [device.ErrSticky].
func (r *Roller) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := r.dev.NewStream()
	if err != nil {
		return err
	}
	defer r.pool.setRollerState("off")
	for {
		retired, k, ok := r.pool.nextJob()
		if !ok {
			return r.leave(s)
		}
		if err := r.work(s, retired, k); errors.Is(err, device.ErrSticky) {
			return err
		}
	}
}

// leave destroys the stream, unless the device is lost.
func (r *Roller) leave(s device.Stream) error {
	if r.pool.isLost() {
		return nil
	}
	return s.Destroy()
}

// work destroys retired, or captures k if retired is nil.
func (r *Roller) work(s device.Stream, retired *graph, k Key) error {
	if retired != nil {
		r.pool.setRollerState("destroying " + retired.key.String())
		return r.pace(func() error { return r.pool.destroy(retired) })
	}
	r.pool.setRollerState("capturing " + k.String())
	g, err := r.pool.capture(s, k, r.timed)
	r.pool.captured(k, g, err)
	return err
}

// timed is pace; it also adds the time of the call to the statistics of captures.
func (r *Roller) timed(call func() error) error {
	return r.pace(func() error {
		begun := time.Now()
		err := call()
		r.pool.addRollTime(time.Since(begun))
		return err
	})
}

// pace makes a device call as soon as the pacer allows it. If the device is lost
// meanwhile, it makes no call and returns [device.ErrSticky].
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

// Stop makes Run return after the work in hand, without further pauses.
func (r *Roller) Stop() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.pool.stopped = true
	r.pool.changed.Broadcast()
}

// Abandon makes Run return without a further device call: the device is lost.
func (r *Roller) Abandon() {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	r.pool.stopped, r.pool.lost = true, true
	r.pool.changed.Broadcast()
}

// nextJob waits for the roller's next job and returns a retired graph to destroy or,
// if there is none, an admitted shape to capture that fits the budget. For a shape
// that does not fit it asks the engine for an eviction. ok is false after Stop.
func (p *Pool) nextJob() (retired *graph, k Key, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped {
		if len(p.retired) > 0 {
			retired, p.retired = p.retired[0], p.retired[1:]
			return retired, k, true
		}
		if r := p.policy.admit(); r != nil && p.finished == nil {
			if p.mayCapture() {
				p.pending++
				p.capturing = r.key
				p.policy.remove(r.key)
				return nil, r.key, true
			}
			p.requestEviction(r)
		}
		p.stats.Roller = "waiting"
		p.changed.Wait()
	}
	return nil, k, false
}

// requestEviction asks the next Maintain to evict a graph for r. It asks once: an
// evicted graph that waits for its last step will make the room.
func (p *Pool) requestEviction(r *captureRequest) {
	if p.evictionRequest != nil || len(p.evicted) > 0 {
		return
	}
	p.evictionRequest = r
	p.wake()
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
	p.wake()
}

// wake calls Options.Wake, which may be nil.
func (p *Pool) wake() {
	if p.opts.Wake != nil {
		p.opts.Wake()
	}
}

func (p *Pool) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Pool) setRollerState(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Roller = state
}

func (p *Pool) addRollTime(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.RollTime += d
}
