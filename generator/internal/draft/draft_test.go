package draft

import (
	"math/rand/v2"
	"testing"
)

// TestNothingAccepted: where no draft ever stands, 512 tokens take at most 1% longer than without drafts.
func TestNothingAccepted(t *testing.T) {
	for name, cost := range map[string]cost{"gpu 3%": gpu(0.03), "gpu 10%": gpu(0.10), "gpu 15%": gpu(0.15),
		"gpu 30%": gpu(0.30), "host": host} {
		for text, tokens := range map[string][]int32{"novel": novel(513 + 100), "lures": lures(513 + 100)} {
			s := &stream{text: tokens, prompt: 100, stands: never}
			speed := newPlay(64, byPolicy, cost, s).run(t)
			t.Logf("%s, %s: %.4f of plain decoding with %d drafts in %d steps", name, text, speed, s.drafts, s.steps)
			if speed < 0.99 || text == "novel" && s.steps > 30 {
				t.Errorf("%s, %s: %.4f, %d steps", name, text, speed, s.steps)
			}
		}
	}
}

// lures is a text in which any three tokens have come before, and went on differently.
func lures(n int) []int32 {
	r := rand.New(rand.NewPCG(3, 4))
	text := make([]int32, n)
	for i := range text {
		text[i] = int32(r.IntN(4))
	}
	return text
}

// TestSteadyAcceptance compares with the best number of drafts in hindsight.
func TestSteadyAcceptance(t *testing.T) {
	for _, c := range []struct {
		name    string
		cost    cost
		streams []int
	}{{"gpu", gpu(0.10), []int{1, 2, 8, 32}}, {"host", host, []int{1, 8}}} {
		for _, n := range c.streams {
			for _, chance := range []float64{0.3, 0.6, 0.7, 0.8, 0.95} {
				speed := newPlay(256, byPolicy, c.cost, many(n, chance)...).run(t)
				best, of := 1.0, 0
				for k := 1; k <= min(Longest, 256/n-1); k++ {
					s := newPlay(256, k, c.cost, many(n, chance)...).run(t)
					if s > best {
						best, of = s, k
					}
				}
				t.Logf("%s, %d at %.2f: %.3f of plain, %.3f with %d drafts", c.name, n, chance, speed, best, of)
				if speed < 0.9*best || speed < 0.99 {
					t.Errorf("%s, %d at %.2f: %.3f of plain, %.3f with %d drafts", c.name, n, chance, speed, best, of)
				}
			}
		}
	}
}

func many(n int, chance float64) (streams []*stream) {
	for i := range n {
		streams = append(streams, &stream{text: novel(1500), prompt: 10, stands: stand(uint64(i), chance)})
	}
	return streams
}

// TestDraftsComeBack: after a long text in which none stand, they are found to stand.
func TestDraftsComeBack(t *testing.T) {
	good := stand(1, 0.7)
	s := &stream{text: novel(3000), prompt: 10, stands: func(text []int32, at int) int {
		if at < 2000 {
			return 0
		}
		return good(text, at)
	}}
	p := newPlay(64, byPolicy, gpu(0.10), s)
	found := 0
	for p.next() {
		p.step(p.plan(t))
		p.report()
		if s.at > 2000 && s.drafts > 0 && s.credit == mostSavings && found == 0 {
			found = s.at
		}
	}
	t.Logf("found after %d tokens; %.3f of plain", found-2000, s.speed())
	if found == 0 || found > 2100 {
		t.Errorf("found after %d tokens", found-2000)
	}
}

// TestCopies: a text that copies every now and then, drafted by lookup. Copying is found at once and novelty costs
// little, so no constant number of drafts is better by more than a twentieth.
func TestCopies(t *testing.T) {
	for name, cost := range map[string]cost{"gpu": gpu(0.10), "dear": gpu(0.6), "host": host} {
		for _, part := range []int{0, 20, 60} {
			copies := func() *stream { return &stream{text: excerpts(part, 2500), prompt: 500, stands: lookup} }
			s := copies()
			speed := newPlay(64, byPolicy, cost, s).run(t)
			best, of := 0.0, 0
			for k := range Longest + 1 {
				if s := newPlay(64, k, cost, copies()).run(t); s > best {
					best, of = s, k
				}
			}
			t.Logf("%s, %d%% copied: %.3f of plain, %.3f with %d drafts", name, part, speed, best, of)
			if speed < 0.95*best || speed < 0.99 {
				t.Errorf("%s, %d%% copied: %.3f of plain, %.3f with %d drafts", name, part, speed, best, of)
			}
		}
	}
}

// excerpts is a text of which such a part in a hundred is copied from further up, 40 tokens at a time. The rest repeats
// short runs by chance.
func excerpts(part, n int) (text []int32) {
	r := rand.New(rand.NewPCG(5, uint64(part)))
	for len(text) < n {
		if len(text) > 200 && r.IntN(100) < part {
			from := r.IntN(len(text) - 40)
			text = append(text, text[from:from+40]...)
			continue
		}
		for range 40 {
			text = append(text, int32(r.ExpFloat64()*30))
		}
	}
	return text[:n]
}

// TestNeighbours: a sequence without drafts, by its own will, a mask or because none stand, waits at most 5% longer,
// but for the one step that measures it on a device whose time grows with the rows. Others gain what that leaves them.
func TestNeighbours(t *testing.T) {
	good := func(i uint64) *stream { return &stream{text: novel(3000), prompt: 10, stands: stand(i, 0.8)} }
	off := func() *stream { return &stream{text: novel(3000), prompt: 10, stands: never, off: true} }
	bad := func() *stream { return &stream{text: novel(3000), prompt: 10, stands: never} }
	for _, c := range []struct {
		name    string
		cost    cost
		streams []*stream
		gain    float64 // tokens of the first stream for one of plain decoding, at least
		delays  int     // steps of the last stream over 5% longer than plain ones, at most
	}{
		{"cheap, off", gpu(0.04), []*stream{good(1), off()}, 2.5, 0},
		{"dear, off", gpu(0.15), []*stream{good(1), off()}, 0.99, 0},
		{"cheap, bad", gpu(0.04), []*stream{good(1), bad()}, 2.5, 0},
		{"seven and one off", gpu(0.10), append(many(7, 0.8), off()), 0.98, 0},
		{"seven and one bad", gpu(0.10), append(many(7, 0.8), bad()), 0.98, 0},
		{"host", host, []*stream{good(1), off()}, 0.99, 1},
	} {
		newPlay(64, byPolicy, c.cost, c.streams...).run(t)
		first, last := c.streams[0], c.streams[len(c.streams)-1]
		t.Logf("%s: %.3f for the first, %.3f for the last, %d delays", c.name, first.speed(), last.speed(), last.delays)
		if first.speed() < c.gain || last.speed() < 0.95 || last.delays > c.delays {
			t.Errorf("%s: %.3f for the first, %.3f for the last, %d delays", c.name, first.speed(), last.speed(), last.delays)
		}
	}
}

// TestManyTogether: streams of all kinds come and go. Together they gain, and none loses more than 5%.
func TestManyTogether(t *testing.T) {
	for name, cost := range map[string]cost{"gpu": gpu(0.05), "dear": gpu(0.2), "host": host} {
		for _, n := range []int{8, 32} {
			r := rand.New(rand.NewPCG(8, uint64(n)))
			var streams []*stream
			for i := range 4 * n {
				s := &stream{text: novel(200 + r.IntN(800)), prompt: 10 + r.IntN(90), start: r.IntN(2000),
					stands: stand(uint64(i), r.Float64()), off: r.IntN(16) == 0}
				if i%4 == 0 {
					s.text, s.stands = excerpts(r.IntN(100), len(s.text)), lookup
				}
				streams = append(streams, s)
			}
			speed := newPlay(64, byPolicy, cost, streams...).run(t)
			worst := streams[0]
			for _, s := range streams {
				if s.speed() < worst.speed() {
					worst = s
				}
			}
			t.Logf("%s, %d: %.3f of plain, %.3f for the worst stream, off: %v", name, n, speed, worst.speed(), worst.off)
			if speed < 0.99 || worst.speed() < 0.95 {
				t.Errorf("%s, %d: %.3f of plain, %.3f for the worst stream", name, n, speed, worst.speed())
			}
		}
	}
}
