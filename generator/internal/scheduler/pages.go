// Package scheduler decides what runs next: which waiting sequences join, which
// rows the next step has, and which KV pages they use. It is plain bookkeeping
// and knows no device.
package scheduler

import "fmt"

// Pages is the pool of KV pages. Pages are counted by reference: a full page
// never changes, so several sequences may read one. Page 0 is never given out:
// padding rows write there.
type Pages struct {
	refs []int32
	free []int32
}

// NewPages makes a pool of n pages, numbered 1 to n.
func NewPages(n int) *Pages {
	p := &Pages{refs: make([]int32, n+1), free: make([]int32, n)}
	for i := range p.free {
		p.free[i] = int32(n - i)
	}
	return p
}

// Len is how many pages the pool has.
func (p *Pages) Len() int { return len(p.refs) - 1 }

// Free is how many pages nobody holds.
func (p *Pages) Free() int { return len(p.free) }

// Take gives n pages, each held once, or none where fewer are free.
func (p *Pages) Take(n int) ([]int32, bool) {
	if n > len(p.free) {
		return nil, false
	}
	at := len(p.free) - n
	taken := append([]int32(nil), p.free[at:]...)
	p.free = p.free[:at]
	for _, page := range taken {
		p.refs[page] = 1
	}
	return taken, true
}

// Retain holds a page once more.
func (p *Pages) Retain(page int32) {
	p.must(page)
	p.refs[page]++
}

// Release gives one hold of a page back; the last one frees it.
func (p *Pages) Release(page int32) {
	p.must(page)
	if p.refs[page]--; p.refs[page] == 0 {
		p.free = append(p.free, page)
	}
}

// must stops the program at the place where the bookkeeping went wrong: going
// on would give one sequence another's keys and values.
func (p *Pages) must(page int32) {
	if page <= 0 || int(page) >= len(p.refs) || p.refs[page] <= 0 {
		panic(fmt.Sprintf("scheduler: page %d is not held", page))
	}
}
