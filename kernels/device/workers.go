package device

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// parallelWork is the number of multiply-adds above which an op uses more than one
// processor. A wake-up takes 10 µs and more, the time of 100,000 multiply-adds whose
// weights come from memory. On a machine of two processors the other one also delivers
// the tokens, so a step of one row of a small model should stay on one.
const parallelWork = 3 << 18

// lingering is how long a worker looks for the next loop before it sleeps. Within a pass
// loops follow each other sooner, so that one wake-up serves a pass.
const lingering = 50 * time.Microsecond

// workers are goroutines that run a parallel loop together with its caller.
type workers struct {
	n      int // processors, the caller's included
	wake   chan *parallelLoop
	latest atomic.Pointer[parallelLoop] // for workers that do not sleep yet; nil: none runs
	done   sync.WaitGroup
}

// parallelLoop calls fn over [0, n) in chunks, which its goroutines take in order. The
// division never changes a result: no chunk reads data that another one writes.
type parallelLoop struct {
	fn     func(begin, end int)
	n      int
	shares int            // the part of what is left that is a chunk
	least  int            // of a chunk, and what its size is a multiple of
	next   atomic.Int64   // begin of the next chunk
	inside atomic.Int32   // workers in the loop; plus ended after its end
	last   sync.WaitGroup // until the last of them has left after the end
	fault  atomic.Pointer[fault]
}

// ended makes the number of workers in a loop negative.
const ended = math.MinInt32 / 2

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
		for ; p != nil; p = w.linger(p) {
			if p.enter() {
				p.run()
				p.leave()
			}
		}
	}
}

// linger returns the next loop after p, or nil if none begins soon. Other goroutines that are ready run first.
func (w *workers) linger(p *parallelLoop) *parallelLoop {
	for until := time.Now().Add(lingering); time.Now().Before(until); runtime.Gosched() {
		if latest := w.latest.Load(); latest != nil && latest != p {
			return latest
		}
	}
	return nil
}

func (w *workers) close() {
	close(w.wake)
	w.done.Wait()
}

// enter reports whether the loop has not ended. Then its caller waits for leave.
func (p *parallelLoop) enter() bool {
	for {
		n := p.inside.Load()
		if n < 0 {
			return false
		}
		if p.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (p *parallelLoop) leave() {
	if p.inside.Add(-1) == ended {
		p.last.Done()
	}
}

// end waits for the workers in the loop, and not for those that were too late to enter: on a busy machine a worker may
// take milliseconds to wake up.
func (p *parallelLoop) end() {
	if p.inside.Add(ended) != ended {
		p.last.Wait()
	}
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
	for begin, end := p.take(); begin < end; begin, end = p.take() {
		p.fn(begin, end)
	}
}

// take returns the next chunk. Chunks shrink, so that all processors end at about the same time.
func (p *parallelLoop) take() (begin, end int) {
	for {
		begin := int(p.next.Load())
		size := ((p.n-begin)/p.shares + p.least) / p.least * p.least
		end := min(begin+size, p.n)
		if begin >= end || p.next.CompareAndSwap(int64(begin), int64(end)) {
			return begin, end
		}
	}
}

// chunkUnit is what the sizes of chunks of a long loop are multiples of: elements of a vector's register.
const chunkUnit = 16

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
	p := &parallelLoop{fn: fn, n: n, shares: 4 * h.workers.n, least: 1}
	if n >= 8*chunkUnit*h.workers.n {
		p.least = chunkUnit
	}
	p.last.Add(1)
	h.workers.offer(p)
	p.run()
	h.workers.latest.CompareAndSwap(p, nil)
	p.end()
	if f := p.fault.Load(); f != nil {
		panic(*f)
	}
}

// offer hands p to the workers that linger and wakes those that sleep. Workers in another loop do not take part.
func (w *workers) offer(p *parallelLoop) {
	w.latest.Store(p)
	for range w.n - 1 {
		select {
		case w.wake <- p:
		default:
			return
		}
	}
}
