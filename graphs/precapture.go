package graphs

import (
	"errors"
	"slices"
	"time"

	"reel.internal/reel/kernels/device"
)

// Precapture captures keys at start, in their order, until all exist or the bounds
// are reached, and returns the number of keys left out. It calls progress after each
// key. A key that fails is counted and skipped: its steps run padded or eagerly. The
// pass must have run eagerly once before. The error is [device.ErrSticky] or nil.
func (p *Pool) Precapture(s device.Stream, keys []Key, progress func(done, of int)) (left int, err error) {
	begun := time.Now()
	var each []time.Duration
	defer func() { p.setCaptureTimes(time.Since(begun), each) }()
	for i, k := range keys {
		if !p.hasRoom() {
			return len(keys) - i, nil
		}
		before := time.Now()
		g, err := p.capture(s, k, func(call func() error) error { return call() })
		if errors.Is(err, device.ErrSticky) {
			return len(keys) - i, err
		}
		if err == nil {
			each = append(each, time.Since(before))
		}
		p.precaptured(k, g, err)
		progress(i+1, len(keys))
	}
	return 0, nil
}

// setCaptureTimes adds the duration of all captures to the statistics, with the
// median of each.
func (p *Pool) setCaptureTimes(all time.Duration, each []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.CaptureTime += all
	if len(each) > 0 {
		slices.Sort(each)
		p.stats.CaptureP50 = each[len(each)/2]
	}
}

// hasRoom is mayCapture under the lock.
func (p *Pool) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mayCapture()
}

// precaptured installs a graph, or counts the failure.
func (p *Pool) precaptured(k Key, g *graph, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.fail(k, err)
		return
	}
	p.install(g)
	p.stats.Precaptured++
}
