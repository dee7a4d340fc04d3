package scheduler

import "fmt"

// Pages is the pool of KV pages. Pages are counted by reference: a full page never changes, so several sequences
// could read one; so far only tests call Retain, which a prefix cache would need. Page 0 is never given out; padding
// rows write there.
type Pages struct {
	refs []int32 // by page
	free []int32
}

// NewPages returns a pool of n free pages, numbered 1 to n.
func NewPages(n int) *Pages {
	p := &Pages{refs: make([]int32, n+1), free: make([]int32, n)}
	for i := range p.free {
		p.free[i] = int32(n - i)
	}
	return p
}

// Free returns the number of free pages.
func (p *Pages) Free() int { return len(p.free) }

// Take returns n pages with one reference each. It returns false if fewer are free, and takes none.
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

// Retain adds a reference to a page.
func (p *Pages) Retain(page int32) {
	p.mustBeHeld(page)
	p.refs[page]++
}

// Release drops a reference to a page; dropping the last one frees it.
func (p *Pages) Release(page int32) {
	p.mustBeHeld(page)
	if p.refs[page]--; p.refs[page] == 0 {
		p.free = append(p.free, page)
	}
}

// mustBeHeld panics if the page has no reference. If the program went on, one sequence would read another's keys
// and values.
func (p *Pages) mustBeHeld(page int32) {
	if page <= 0 || int(page) >= len(p.refs) || p.refs[page] <= 0 {
		panic(fmt.Sprintf("scheduler: page %d is not held", page))
	}
}
