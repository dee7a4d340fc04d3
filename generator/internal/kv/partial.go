package kv

import "slices"

// partial is a free page that still has the keys and values of the tokens after a node's page, fewer than a page of
// them. A prompt that goes on with these tokens takes the page and fills it. As a free page it is anybody's: when it is
// taken for something else, it is no partial page any more.
type partial struct {
	page   int32
	tokens []int32
	user   uint64
}

// ReleasePartial is Release for a page that has the given tokens, fewer than a page, after those of parent. They must
// be prompt tokens whose rows have been computed. It becomes parent's partial page, and of the free pages the last to
// be taken.
func (p *Pool) ReleasePartial(parent *Node, tokens []int32, page int32, user uint64) {
	p.Release(page)
	if p.refs[page] > 0 || p.nodes[page] != nil || parent.parent == nil || !p.Has(parent) {
		return
	}
	p.losePartial(parent)
	at := slices.Index(p.free, page)
	copy(p.free[1:at+1], p.free[:at])
	p.free[0] = page
	parent.partial = &partial{page: page, tokens: slices.Clone(tokens), user: user}
	p.partials[page] = parent
}

// FindPartial returns with how many of the tokens parent's partial page begins; 0 if there is none.
func (p *Pool) FindPartial(parent *Node, tokens []int32) (n int) {
	if parent.partial == nil {
		return 0
	}
	for n < min(len(tokens), len(parent.partial.tokens)) && tokens[n] == parent.partial.tokens[n] {
		n++
	}
	return n
}

// TakePartial takes parent's partial page, in which FindPartial has found some tokens, with one reference.
func (p *Pool) TakePartial(parent *Node) (page int32) {
	p.version++
	page = parent.partial.page
	p.losePartial(parent)
	at := slices.Index(p.free, page)
	p.free = slices.Delete(p.free, at, at+1)
	p.refs[page] = 1
	return page
}

// losePartial forgets what parent's partial page has, if there is one. The page stays free.
func (p *Pool) losePartial(parent *Node) {
	if parent.partial != nil {
		delete(p.partials, parent.partial.page)
		parent.partial = nil
	}
}

// losePartialsOf forgets what the partial ones of some pages have, since they are taken for something else.
func (p *Pool) losePartialsOf(pages []int32) {
	if len(p.partials) == 0 {
		return
	}
	for _, page := range pages {
		if parent := p.partials[page]; parent != nil {
			p.losePartial(parent)
		}
	}
}

// dropPartials forgets what the partial pages of an owner's texts have.
func (p *Pool) dropPartials(owner Owner) {
	for _, parent := range p.partials {
		if parent.partial.user == owner.User && parent.scope == owner.Scope {
			p.losePartial(parent)
		}
	}
}

// DropPartials forgets what all partial pages have.
func (p *Pool) DropPartials() {
	for _, parent := range p.partials {
		p.losePartial(parent)
	}
}
