package draft

const (
	// keep is the weight that a result loses with each later one: about 30 of them count.
	keep = 0.97
	// strength is the number of results that the assumption at a sequence's start is worth. It fades as they do.
	strength = 2
)

// chance is the acceptance of a chain: of its first draft, and of each later one if those before it stood. A drafter
// that copies is right for long or not at all, so the two differ.
type chance struct{ first, rest float64 }

// atLeast returns the larger of both, place by place.
func (c chance) atLeast(o chance) chance {
	return chance{max(c.first, o.first), max(c.rest, o.rest)}
}

// tokens writes how many tokens chains of 0 to Longest drafts give, of which the sequence has room for so many:
//
//	1 + first · (1 + rest + rest² + …)
func (c chance) tokens(to *[Longest + 1]float64, room int) {
	sum, reached := 1.0, c.first
	for k := range to {
		to[k] = sum
		if k < room {
			sum, reached = sum+reached, reached*c.rest
		}
	}
}

// acceptance has the results of the chains of one sequence that were begun at one sight.
type acceptance struct{ first, rest rate }

func newAcceptance(assumed chance) acceptance {
	return acceptance{newRate(assumed.first), newRate(assumed.rest)}
}

// assumedChance is that of a new sequence: for a drafter that looks up, little without a match and much with one.
func assumedChance(s sight, lookup bool) chance {
	if !lookup {
		return chance{0.5, 0.7}
	}
	return [sights]chance{unseen: {0.05, 0.6}, seen: {0.5, 0.8}}[s]
}

// add counts a chain.
func (a *acceptance) add(drafted, accepted int) {
	a.first.add(min(accepted, 1), 1)
	if accepted > 0 && drafted > 1 {
		a.rest.add(accepted-1, min(accepted, drafted-1))
	}
}

func (a *acceptance) mean() chance { return chance{a.first.mean(), a.rest.mean()} }

// rate is the part of drafts that stood, an exponential average.
type rate struct{ hits, trials float64 }

func newRate(assumed float64) rate { return rate{strength * assumed, strength} }

func (r *rate) add(hits, trials int) {
	r.hits = r.hits*keep + float64(hits)
	r.trials = r.trials*keep + float64(trials)
}

func (r *rate) mean() float64 { return r.hits / r.trials }
