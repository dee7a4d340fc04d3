package tokenizer

import "runtime"

// sliceNS is the time that Encode works, in estimated ns, before it yields to other goroutines.
// On a machine with few processors an engine's step then waits about that long, and not the 10
// ms after which Go preempts a goroutine. Prompts of up to 1 KB take less than one slice.
const sliceNS = 100_000

// block is the number of iterations of a short loop that are counted together. Counting each
// one makes the loop up to a third slower.
const block = 256

// pacer makes Encode yield to other goroutines at intervals.
type pacer struct {
	left int    // ns of work until the next yield
	rest func() // yields; runtime.Gosched
}

func newPacer() *pacer { return &pacer{sliceNS, runtime.Gosched} }

// spent counts work that took about ns nanoseconds.
func (p *pacer) spent(ns int) {
	if p.left -= ns; p.left <= 0 {
		p.yield()
	}
}

//go:noinline
func (p *pacer) yield() {
	p.left = sliceNS
	p.rest()
}
