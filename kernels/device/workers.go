package device

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// parallelWork is how many multiply-adds make it worth waking another
// processor. A wake-up costs about 10 µs, in which one does some 100,000; and on
// a machine of two processors it takes the other one from those who hand out the
// tokens, so that a step of one row of a small model keeps to one.
const parallelWork = 1 << 21

// workers are goroutines that share the parts of one op with its caller.
type workers struct {
	n    int
	wake chan *parts
	done sync.WaitGroup
}

// parts is one op's work, cut into pieces that whoever is free takes next. The
// cut never changes a result: no piece reads what another writes.
type parts struct {
	fn     func(begin, end int)
	n      int
	piece  int
	next   atomic.Int64
	joined sync.WaitGroup
	fault  atomic.Pointer[fault]
}

func newWorkers(n int) *workers {
	w := &workers{n: n, wake: make(chan *parts)}
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

// run returns early where a piece meets a fault, which For then raises again.
func (p *parts) run() {
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
		begin := int(p.next.Add(int64(p.piece))) - p.piece
		if begin >= p.n {
			return
		}
		p.fn(begin, min(begin+p.piece, p.n))
	}
}

// For calls fn over [0, n) in pieces, on several processors where work, the
// multiply-adds in all, is enough to pay for it. Pieces must not depend on each other.
func (h *Host) For(n int, work int, fn func(begin, end int)) {
	if n == 0 {
		return
	}
	if work < parallelWork || h.workers.n == 1 || n == 1 {
		fn(0, n)
		return
	}
	p := &parts{fn: fn, n: n, piece: max(1, n/(8*h.workers.n))}
	for range h.workers.n - 1 {
		p.joined.Add(1)
		select {
		case h.workers.wake <- p:
		default: // that worker is still busy waking up: go on without it
			p.joined.Done()
		}
	}
	p.run()
	p.joined.Wait()
	if f := p.fault.Load(); f != nil {
		panic(*f)
	}
}
