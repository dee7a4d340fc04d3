package kernels

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// candidate is a token that may still be drawn.
type candidate struct {
	id    int32
	logit float32
	p     float64 // unnormalised probability
}

// byLogit orders the most probable first, the lower id first among equals.
func byLogit(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// draw holds buffers of sampling, reused from row to row.
type draw struct {
	logits     []float32
	candidates []candidate
	best       []candidate
	counts     []int32 // by token; 0 between draws
	biases     []Bias
	record     [RecordWords]int32 // that nobody reads
}

// draws keeps the buffers from step to step.
var draws = sync.Pool{New: func() any { return new(draw) }}

// token draws the next token of p. It does not change logits. If a mask allows no token it returns 0.
func (d *draw) token(logits []float32, s Sampling, p Past) int32 {
	l := d.scaled(logits, s, p)
	if s.Temperature == 0 {
		return argmax(l)
	}
	c := d.filter(l, s)
	if len(c) == 0 {
		return 0
	}
	return pick(c, uniform(s.Seed, p.index()))
}

// Candidates returns the tokens that s may draw from logits: those that its filters keep.
// A temperature of 0 filters nothing.
func (s Sampling) Candidates(logits []float32, p Past) (ids []int32) {
	d := new(draw)
	for _, c := range d.filter(d.scaled(logits, s, p), s) {
		ids = append(ids, c.id)
	}
	return ids
}

// scaled returns the logits after penalties, biases, mask and temperature.
func (d *draw) scaled(logits []float32, s Sampling, p Past) []float32 {
	d.logits = append(d.logits[:0], logits...)
	penalize(d.logits, s.RepeatPenalty, p.window())
	d.edit(s, p)
	if s.Temperature != 0 {
		for i := range d.logits {
			d.logits[i] /= s.Temperature
		}
	}
	return d.logits
}

// penalize makes each token of the window less likely, once however often it occurs.
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

// filter returns the candidates that top_k, top_p and min_p keep, with their
// probabilities up to a common factor. They are sorted by probability if top_k or top_p is on,
// else by id. There are none if a mask allows no token.
func (d *draw) filter(l []float32, s Sampling) []candidate {
	c := d.candidates[:0]
	for id, v := range l {
		if s.Masked && math.IsInf(float64(v), -1) {
			continue
		}
		c = append(c, candidate{id: int32(id), logit: v})
	}
	d.candidates = c
	if len(c) == 0 {
		return nil
	}
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
		// The most probable candidate has weight 1 (weigh).
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

// nucleus returns the fewest of the sorted candidates with a total weight of at least mass
// (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019).
func nucleus(c []candidate, mass float64) []candidate {
	var sum float64
	for i := range c {
		if sum += c[i].p; sum >= mass {
			return c[:i+1]
		}
	}
	return c
}

// pick returns the candidate at the fraction u of the total weight.
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
		best = slices.Insert(best, min(at, len(best)), x) // a NaN may be sorted last
	}
	d.best = best
	return best
}

// philox4x32 is the counter-based generator Philox4x32-10 of Salmon et al.,
// "Parallel Random Numbers: As Easy as 1, 2, 3", 2011: ten rounds that mix a
// counter under a key. Equal inputs give equal outputs on every device.
func philox4x32(counter [4]uint32, key [2]uint32) [4]uint32 {
	const m0, m1, w0, w1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
	for range 10 {
		a, b := uint64(m0)*uint64(counter[0]), uint64(m1)*uint64(counter[2])
		counter = [4]uint32{
			uint32(b>>32) ^ counter[1] ^ key[0], uint32(b),
			uint32(a>>32) ^ counter[3] ^ key[1], uint32(a),
		}
		key[0] += w0
		key[1] += w1
	}
	return counter
}

// uniform is the random number of a token: a function of its request's seed and
// its index alone, in (0, 1).
func uniform(seed uint64, index int) float64 {
	r := philox4x32([4]uint32{uint32(index), uint32(uint64(index) >> 32), 0, 0},
		[2]uint32{uint32(seed), uint32(seed >> 32)})
	return (float64(r[0]) + 0.5) / (1 << 32)
}
