package graphs

import (
	"errors"
	"fmt"
	"runtime"

	"reel.internal/reel/kernels/device"
)

// errBudget means that an exec turned out larger than the budget left for it.
var errBudget = errors.New("graphs: the graph does not fit the budget")

// record captures the pass of k on s. It ends the capture even if the pass fails,
// unless the device is lost, and stays on one thread: a driver ends a capture only
// on the thread that began it.
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

// capture returns a graph of k that is ready to be replayed: captured, instantiated
// and uploaded. It passes each device call to call, which may delay it. After a
// failure nothing of the graph is left.
func (p *Pool) capture(s device.Stream, k Key, call func(func() error) error) (*graph, error) {
	id := p.identity()
	var recorded device.Graph
	err := call(func() (err error) {
		recorded, err = record(s, p.opts.Pass, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture of %s: %w", k, err)
	}
	g := &graph{key: k, identity: id}
	err = call(func() (err error) {
		return device.GiveBack(func() (err error) {
			g.exec, err = recorded.Instantiate()
			return err
		}, recorded.Destroy)
	})
	if g.exec == nil {
		return nil, fmt.Errorf("instantiation of %s: %w", k, err)
	}
	fits := p.countExec(g)
	if err == nil && !fits {
		err = errBudget
	}
	if err == nil {
		err = call(func() error { return s.Upload(g.exec) })
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

// countExec adds a new exec to the counts and reports whether the budget still
// holds. An exec larger than the whole budget is never kept, so its size predicts
// nothing about the next one.
func (p *Pool) countExec(g *graph) bool {
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

// destroy destroys an exec and removes it from the counts.
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

// mayCapture reports whether one more exec, as large as the largest so far, fits
// the bounds.
func (p *Pool) mayCapture() bool {
	return p.stats.Execs+p.pending < p.opts.MaxGraphs &&
		p.stats.Bytes+int64(p.pending+1)*p.largest <= p.opts.Budget
}

// fail counts a failed capture of k.
func (p *Pool) fail(k Key, err error) {
	p.stats.Failed++
	p.stats.Failure = err.Error()
	p.policy.fail(k)
}
