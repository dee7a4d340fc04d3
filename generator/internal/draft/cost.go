package draft

const (
	// recent is the number of steps for which a plain step's time is a measure for others.
	recent = 64
	// between is the number of steps between two whose cost is not known: more than are in flight.
	between = 4
	// A measurement is trusted for count² · trusted steps; count is certain at most.
	trusted, certain = 64, 8
	// unclear is the cost up to which a measurement may be wrong about patience.
	unclear = 1.15
	// steep is the ratio to the assumed cost above which a device is taken for one whose cost grows with the rows.
	steep = 1.25
)

// costs is the measured table: how much longer a verify step is than a plain one of the same sequences. Times of plain
// steps change with the positions, so they are followed; ratios hardly do.
type costs struct {
	now    int64
	plain  []plain              // by sequences
	ratios [][Longest + 2]ratio // by sequences and queries
	near   []int                // by sequences: the nearest number of sequences with a measured ratio, 0: none
}

// plain is the time of a plain step.
type plain struct {
	time             float64 // nanoseconds; 0: never measured
	first            bool    // time is of one step alone
	seen, calibrated int64   // when it last changed, and when by a plain step
}

// ratio is the time of a verify step over that of a plain one.
type ratio struct {
	value float64
	count int64 // of measurements, certain at most
	at    int64 // when it was last measured
	tried int64 // when a step was last planned to measure it
}

func newCosts(sequences int) costs {
	return costs{
		plain:  make([]plain, sequences+1),
		ratios: make([][Longest + 2]ratio, sequences+1),
		near:   make([]int, sequences+1),
	}
}

// fresh reports whether a plain step of n sequences was measured lately.
func (c *costs) fresh(n int) bool {
	return c.plain[n].calibrated > 0 && c.now-c.plain[n].calibrated <= recent
}

// trusts reports whether the cost of such a step was measured often or lately.
func (c *costs) trusts(n, queries int) bool {
	r := &c.ratios[n][queries]
	return r.count > 0 && c.now-r.at <= trusted*r.count*r.count
}

// try reports whether a step whose cost is not trusted may be planned: its cost can be learnt only beside a fresh plain
// step, and the first of them comes back before there is a second.
func (c *costs) try(n, queries int) bool {
	r := &c.ratios[n][queries]
	if !c.fresh(n) || r.count == 0 && r.tried > 0 && c.now-r.tried < between {
		return false
	}
	r.tried = c.now
	return true
}

func (c *costs) took(n, queries int, d float64) {
	if n < 1 || n >= len(c.plain) || queries < 1 || queries > Longest+1 || d <= 0 {
		return
	}
	c.now++
	p, r := &c.plain[n], &c.ratios[n][queries]
	switch {
	case queries == 1:
		p.follow(d, c.now)
		p.calibrated = c.now
	case c.fresh(n):
		r.measure(d/p.time, queries, c.now)
		if r.count == 1 {
			c.findNear()
		}
	case p.time > 0 && r.count > 0:
		p.follow(d/c.expected(n, queries), c.now)
	}
}

// follow moves a quarter of the way. Disturbances make steps longer, never shorter, so longer ones count less, and a
// first one is believed when a second is no shorter.
func (p *plain) follow(d float64, now int64) {
	switch {
	case p.time == 0 || now-p.seen > recent:
		p.time, p.first = d, true
	case p.first:
		p.time, p.first = min(p.time, d), false
	default:
		p.time *= 1 + (min(max(d/p.time, 0.8), 1.1)-1)/4
	}
	p.seen = now
}

// measure takes the first value as it is, the second if it is smaller, and averages later ones.
func (r *ratio) measure(x float64, queries int, now int64) {
	x = min(max(x, 0.95), 1.2*float64(queries))
	switch {
	case r.count == 0, r.count == 1 && x < r.value:
		r.value = x
	default:
		r.value *= 1 + (min(max(x/r.value, 0.8), 1.15)-1)/float64(r.count+1)
	}
	r.count = min(r.count+1, certain)
	r.at = now
}

// findNear is called when the first ratio of a number of sequences may have been measured.
func (c *costs) findNear() {
	for n := range c.near {
		c.near[n] = 0
		for away := 0; away < len(c.near) && c.near[n] == 0; away++ {
			for _, m := range [2]int{n - away, n + away} {
				if m > 0 && m < len(c.near) && c.near[n] == 0 && c.measured(m) {
					c.near[n] = m
				}
			}
		}
	}
}

func (c *costs) measured(n int) bool {
	for _, r := range c.ratios[n] {
		if r.count > 0 {
			return true
		}
	}
	return false
}

// price is the cost of a verify step in plain steps, as it is expected and at worst.
type price struct{ expected, worst float64 }

func (c *costs) price(n, queries int) price {
	return price{c.expected(n, queries), c.worst(n, queries)}
}

// expected is hopeful where no cost was measured, and a measurement that is old or has few beside it turns back to the
// assumption: so each cost is tried, and tried again.
func (c *costs) expected(n, queries int) float64 {
	r := &c.ratios[n][queries]
	if r.count == 0 {
		return c.guessed(n, queries)
	}
	if assumed := assumed(n, queries); !c.trusts(n, queries) && r.value > assumed {
		return assumed + (r.value-assumed)*float64(trusted*r.count*r.count)/float64(c.now-r.at)
	}
	return r.value
}

// careful is the cost for a sequence without drafts. It takes a step that was not measured for as much longer than a
// shorter one as it has more rows, and does not try one before the shortest. It never doubts that a step is much too
// long.
func (c *costs) careful(n, queries int) float64 {
	low := c.lower(n, queries)
	value := c.ratios[n][low].value
	switch {
	case low == queries && value < unclear:
		return c.expected(n, queries)
	case low > 1:
		linear := 1 + (value-1)*float64(queries-1)/float64(low-1)
		return max(linear, c.guessed(n, queries))
	case queries == 2, c.near[n] > 0 && c.near[n] != n:
		return c.guessed(n, queries)
	}
	return float64(queries)
}

// worst is the cost where rows take as long as the ones before them.
func (c *costs) worst(n, queries int) float64 {
	low := c.lower(n, queries)
	worst := float64(queries)
	if low > 1 {
		worst *= max(c.ratios[n][low].value, 1) / float64(low)
	}
	return worst
}

// lower returns the largest number of queries up to this one whose cost was measured. One query is a plain step.
func (c *costs) lower(n, queries int) int {
	for queries > 1 && c.ratios[n][queries].count == 0 {
		queries--
	}
	return queries
}

// guessed follows the assumed cost, corrected by the measured ratios at fewer and at more queries.
func (c *costs) guessed(n, queries int) float64 {
	m := c.near[n]
	if m == 0 {
		return assumed(n, queries)
	}
	low, high := c.lower(m, queries), queries+1
	for high <= Longest+1 && c.ratios[m][high].count == 0 {
		high++
	}
	correction := c.correction(m, low)
	switch {
	case high <= Longest+1:
		correction += (c.correction(m, high) - correction) * float64(queries-low) / float64(high-low)
	case correction > steep:
		correction = 1 + (correction-1)*float64(queries-1)/float64(low-1)
	}
	return assumed(n, queries) * correction
}

// correction returns a measured ratio over the assumed one. One query is one plain step.
func (c *costs) correction(n, queries int) float64 {
	if queries == 1 {
		return 1
	}
	return c.ratios[n][queries].value / assumed(n, queries)
}

// assumed is the cost before anything is measured: a GPU reads the weights once, for 8 rows at nearly the price of one.
func assumed(n, queries int) float64 { return assumedRows(n*queries) / assumedRows(n) }

func assumedRows(rows int) float64 {
	switch r := float64(rows); {
	case rows <= 8:
		return 1 + 0.006*(r-1)
	case rows <= 16:
		return 1.042 + 0.045*(r-8)
	default:
		return 1.402 + 0.01*(r-16)
	}
}
