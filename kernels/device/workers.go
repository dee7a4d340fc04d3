package device

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// parallelWork is the number of multiply-adds above which an op uses more than one
// processor. A wake-up takes about 10 µs, the time of 100,000 multiply-adds whose weights
// come from memory. On a machine of two processors the other one also delivers the
// tokens, so a step of one row of a small model should stay on one.
const parallelWork = 3 << 18

// workers are goroutines that run a parallel loop together with its caller.
type workers struct {
	n    int // processors, the caller's included
	wake chan *parallelLoop
	done sync.WaitGroup
}

// parallelLoop calls fn over [0, n) in chunks, which its goroutines take in order. The
// division never changes a result: no chunk reads data that another one writes.
type parallelLoop struct {
	fn     func(begin, end int)
	n      int
	chunk  int
	next   atomic.Int64   // begin of the next chunk
	joined sync.WaitGroup // workers in the loop
	fault  atomic.Pointer[fault]
}

func newWorkers(n int) *workers {
	w := &workers{n: n, wake: make(chan *parallelLoop)}
	for range n - 1 {
		w.done.Add(1)
		go w.loop()
	}
	return w
}

func (w *workers) loop() {
	defer w.done.Done()
	debug.SetPanicOnFault(true) // of this goroutine
	for p := range w.wake {
		p.run()
		p.joined.Done()
	}
}

func (w *workers) close() {
	close(w.wake)
	w.done.Wait()
}

// run takes chunks until none is left. After a fault it returns early and keeps the
// fault, with which [Host.For] panics again.
func (p *parallelLoop) run() {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			p.fault.Store(&r)
		default:
			panic(r)
		}
	}()
	for {
		begin := int(p.next.Add(int64(p.chunk))) - p.chunk
		if begin >= p.n {
			return
		}
		p.fn(begin, min(begin+p.chunk, p.n))
	}
}

// For calls fn over [0, n) in chunks, which must not depend on each other. It uses
// several processors if work, the total number of multiply-adds, is worth their wake-up.
func (h *Host) For(n int, work int, fn func(begin, end int)) {
	if n == 0 {
		return
	}
	if work < parallelWork || h.workers.n == 1 || n == 1 {
		fn(0, n)
		return
	}
	p := &parallelLoop{fn: fn, n: n, chunk: max(1, n/(8*h.workers.n))}
	for range h.workers.n - 1 {
		p.joined.Add(1)
		select {
		case h.workers.wake <- p:
		default: // no worker is ready: go on without it
			p.joined.Done()
		}
	}
	p.run()
	p.joined.Wait()
	if f := p.fault.Load(); f != nil {
		panic(*f)
	}
}
