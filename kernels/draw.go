package kernels

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// candidate is a token that a draw may still take.
type candidate struct {
	id    int32
	logit float32
	p     float64 // unnormalised probability
}

// byLogit orders the most probable first, the lower id first among equals.
func byLogit(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// draw holds the room that sampling needs, reused from row to row.
type draw struct {
	logits     []float32
	candidates []candidate
	best       []candidate
}

// draws keeps that room from step to step.
var draws = sync.Pool{New: func() any { return new(draw) }}

// token draws from logits, which it leaves as they are.
func (d *draw) token(logits []float32, s Sampling, window []int32, index int) int32 {
	d.logits = append(d.logits[:0], logits...)
	l := d.logits
	penalize(l, s.RepeatPenalty, window)
	if s.Temperature == 0 {
		return argmax(l)
	}
	for i := range l {
		l[i] /= s.Temperature
	}
	return pick(d.filter(l, s), uniform(s.Seed, index))
}

// penalize makes each token of the window less likely, once.
func penalize(l []float32, penalty float32, window []int32) {
	if penalty == 1 || penalty == 0 {
		return
	}
	for i, id := range window {
		if slices.Contains(window[:i], id) {
			continue
		}
		if l[id] > 0 {
			l[id] /= penalty
		} else {
			l[id] *= penalty
		}
	}
}

func argmax(l []float32) int32 {
	best := 0
	for i, v := range l {
		if v > l[best] {
			best = i
		}
	}
	return int32(best)
}

// filter returns the candidates that top_k, top_p and min_p leave, with their
// probabilities up to a common factor. Without top_k and top_p they stay in the order of ids.
func (d *draw) filter(l []float32, s Sampling) []candidate {
	c := d.candidates[:0]
	for id, v := range l {
		c = append(c, candidate{id: int32(id), logit: v})
	}
	d.candidates = c
	if s.TopK > 0 || s.TopP < 1 {
		slices.SortFunc(c, byLogit)
	}
	if k := int(s.TopK); k > 0 && k < len(c) {
		c = c[:k]
	}
	total := weigh(c)
	if s.TopP < 1 {
		c = nucleus(c, float64(s.TopP)*total)
	}
	if s.MinP > 0 {
		// The most probable weighs 1, see weigh.
		c = slices.DeleteFunc(c, func(x candidate) bool { return x.p < float64(s.MinP) })
	}
	return c
}

// weigh gives each candidate exp(logit - the largest logit) and returns the sum.
func weigh(c []candidate) (total float64) {
	most := c[0].logit
	for i := range c {
		most = max(most, c[i].logit)
	}
	for i := range c {
		c[i].p = math.Exp(float64(c[i].logit - most))
		total += c[i].p
	}
	return total
}

// nucleus keeps the fewest of the sorted candidates that weigh at least mass
// together (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019).
func nucleus(c []candidate, mass float64) []candidate {
	var sum float64
	for i := range c {
		if sum += c[i].p; sum >= mass {
			return c[:i+1]
		}
	}
	return c
}

// pick walks the candidates until u of their weight is behind.
func pick(c []candidate, u float64) int32 {
	var total float64
	for i := range c {
		total += c[i].p
	}
	left := u * total
	for i := range c {
		if left -= c[i].p; left < 0 {
			return c[i].id
		}
	}
	return c[len(c)-1].id
}

// top returns the n most probable tokens, most probable first.
func (d *draw) top(logits []float32, n int) []candidate {
	best := d.best[:0]
	if n == 0 {
		return best
	}
	for id, l := range logits {
		if len(best) == n && l <= best[n-1].logit {
			continue
		}
		x := candidate{id: int32(id), logit: l}
		at, _ := slices.BinarySearchFunc(best, x, byLogit)
		if len(best) == n {
			best = best[:n-1]
		}
		best = slices.Insert(best, at, x)
	}
	d.best = best
	return best
}
