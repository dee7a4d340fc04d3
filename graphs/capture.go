package graphs

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"reel/kernels/device"
)

// errBudget says that an exec turned out larger than what was left for it.
var errBudget = errors.New("graphs: the graph does not fit the budget")

// record captures the pass of k on s. Whatever happens, the capture is ended,
// unless the device is lost: and on the thread that began it, for a driver takes
// it from no other.
func record(s device.Stream, pass Pass, k Key) (device.Graph, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.BeginCapture(); err != nil {
		return nil, err
	}
	launched := pass(s, k)
	if errors.Is(launched, device.ErrSticky) {
		return nil, launched
	}
	g, err := s.EndCapture()
	if launched == nil {
		return g, err
	}
	if g != nil {
		err = g.Destroy()
	}
	return nil, errors.Join(launched, err)
}

// capture makes a graph of k ready to replay: captured, instantiated, uploaded.
// step runs each device call, at a time of its choosing. What a failure leaves
// is destroyed.
func (p *Pool) capture(s device.Stream, k Key, step func(func() error) error) (*graph, error) {
	id := p.identity()
	var recorded device.Graph
	err := step(func() (err error) {
		recorded, err = record(s, p.opts.Pass, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture of %s: %w", k, err)
	}
	g := &graph{key: k, identity: id}
	err = step(func() (err error) {
		return device.GiveBack(func() (err error) {
			g.exec, err = recorded.Instantiate()
			return err
		}, recorded.Destroy)
	})
	if g.exec == nil {
		return nil, fmt.Errorf("instantiation of %s: %w", k, err)
	}
	fits := p.hold(g)
	if err == nil && !fits {
		err = errBudget
	}
	if err == nil {
		err = step(func() error { return s.Upload(g.exec) })
	}
	if err == nil {
		return g, nil
	}
	err = fmt.Errorf("preparing %s: %w", k, err)
	return nil, device.GiveBack(func() error { return err }, func() error { return p.destroy(g) })
}

func (p *Pool) identity() Identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opts.Identity
}

// hold counts an exec in and tells whether the budget still holds. One that is
// larger than all of the budget says nothing of the next: it is not kept.
func (p *Pool) hold(g *graph) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Execs++
	p.stats.Bytes += g.exec.Bytes()
	p.stats.Peak = max(p.stats.Peak, p.stats.Bytes)
	if g.exec.Bytes() <= p.opts.Budget {
		p.largest = max(p.largest, g.exec.Bytes())
	}
	return p.stats.Bytes <= p.opts.Budget
}

// destroy destroys an exec and counts it out.
func (p *Pool) destroy(g *graph) error {
	bytes := g.exec.Bytes()
	err := g.exec.Destroy()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Execs--
	p.stats.Bytes -= bytes
	p.changed.Broadcast()
	return err
}

// fits tells whether one more exec of the size known so far may be made.
func (p *Pool) fits() bool {
	return p.stats.Execs+p.pending < p.opts.MaxGraphs && p.stats.Bytes+int64(p.pending+1)*p.largest <= p.opts.Budget
}

// Precapture captures keys at start, in their order, until all exist or the
// budget is reached; how many it left out is returned. progress is called after
// each. A key that fails is counted and left out: its steps run padded or
// eagerly. The pass has run eagerly once before.
func (p *Pool) Precapture(s device.Stream, keys []Key, progress func(done, of int)) (left int, err error) {
	begun := time.Now()
	var each []time.Duration
	defer func() { p.tookToPrecapture(time.Since(begun), each) }()
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

// tookToPrecapture notes what the captures took, in all and each.
func (p *Pool) tookToPrecapture(all time.Duration, each []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.CaptureTime += all
	if len(each) > 0 {
		slices.Sort(each)
		p.stats.CaptureP50 = each[len(each)/2]
	}
}

func (p *Pool) hasRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits()
}

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

// fail counts a capture that failed. A key that fails too often is not wished for again.
func (p *Pool) fail(k Key, err error) {
	p.stats.Failed++
	p.stats.Failure = err.Error()
	p.failures[k]++
	delete(p.wishes, k)
}

// maxFailures is after how many failures a key is served padded or eagerly for good.
const maxFailures = 3

// Close destroys every graph. The roller has ended and no step runs.
func (p *Pool) Close() error {
	p.mu.Lock()
	all := append(p.dead, p.retiring...)
	for _, g := range p.live {
		all = append(all, g)
	}
	if p.finished != nil {
		all = append(all, p.finished)
	}
	p.live, p.families, p.retiring, p.dead, p.finished = map[Key]*graph{}, map[Key][]*graph{}, nil, nil, nil
	p.mu.Unlock()
	var releases []func() error
	for _, g := range all {
		releases = append(releases, func() error { return p.destroy(g) })
	}
	return device.GiveBack(releases...)
}
