package tokenizer

import "runtime"

// sliceNS is about how long Encode works before it lets other goroutines run: on a
// machine of few processors an engine's step waits for that long at most, not for the
// 10 ms after which Go takes the processor away. Prompts of up to 1 KB never get there.
const sliceNS = 100_000

// block is how many rounds of a short loop are counted at once: one by one they cost
// up to a third more.
const block = 256

// pacer has Encode let other goroutines run at intervals.
type pacer struct {
	left int // ns of work until then
	rest func()
}

func newPacer() *pacer { return &pacer{sliceNS, runtime.Gosched} }

// did counts work of about so many ns.
func (p *pacer) did(ns int) {
	if p.left -= ns; p.left <= 0 {
		p.yield()
	}
}

//go:noinline
func (p *pacer) yield() {
	p.left = sliceNS
	p.rest()
}
