package scheduler

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reel.internal/reel/generator/internal/kv"
)

// round does one thing of those that an engine does, at random.
func (m *simulation) round() {
	switch m.pick(14) {
	case 0, 1, 2:
		m.form()
	case 3, 4:
		m.complete()
	case 5, 6:
		m.begin()
	case 7, 8:
		m.copied()
	case 9:
		m.moved()
	case 10:
		if len(m.steps) > 0 {
			m.run(m.steps[m.pick(len(m.steps))])
		}
	case 11:
		m.reread()
	case 12, 13:
		m.allow()
	}
}

// drain ends all sequences, and checks that nothing is left.
func (m *simulation) drain() {
	for m.s.Running()+m.s.root.queued+len(m.s.leaving)+len(m.steps)+len(m.copies)+len(m.moves) > 0 {
		m.idle++
		for _, do := range []func() bool{m.begin, m.form, m.copied, m.complete, m.moved, m.allow} {
			if do() {
				m.idle = 0
			}
		}
		if m.idle > 3 {
			m.fault("nothing goes on: %d run, %d wait, %+v", m.s.Running(), m.s.root.queued, m.s.pages.Stats())
			return
		}
	}
	st := m.s.pages.Stats()
	if m.s.pages.Free() != m.s.Pages || st.HostSequence != 0 || !m.s.pages.MayReserve(st.HostPages) {
		m.fault("%d of %d pages are free at the end, %+v", m.s.pages.Free(), m.s.Pages, st)
	}
	if r := &m.s.root; r.prompts != 0 || r.asking != 0 || !(r.virtual < 1e12) {
		m.fault("%d prompts of %d users are left at the end, at the virtual time %v", r.prompts, r.asking, r.virtual)
	}
}

// randomLoad runs random sequences, cancels and drops in a random scheduler.
func randomLoad(pick func(int) int, fault func(string, ...any), plant func(*simulation)) *simulation {
	o := Options{MaxBatch: 1 + pick(5), MaxQueue: 100, Chunk: 1 + pick(12), Context: 40, PageTokens: 1 + pick(5),
		Reserve: pick(3), ReservePages: pick(4), InFlight: 1 + pick(2)}
	if pick(2) == 0 {
		o.MaxVerify = 1 + pick(20)
	}
	o.Gap = time.Duration(pick(2) * pick(3000))
	if pick(2) == 0 {
		of := mixedRows(1+pick(4), 1+pick(12))
		o.MixedRows = func(n int) (rows, most int) {
			if n < 1 || n > o.MaxBatch+o.Reserve {
				fault("a mixed step of %d sequences", n)
			}
			return of(n)
		}
	}
	o.Pages = pagesFor(40, o.PageTokens) + o.Reserve*o.ReservePages + pick(12)
	m, err := newSimulation(o, pick(80), pick, fault)
	if err != nil {
		panic(err)
	}
	if plant != nil {
		plant(m)
	}
	for range 14 {
		m.add()
		for range pick(16) {
			m.round()
		}
		switch pick(8) {
		case 0:
			m.s.Remove(m.all[pick(len(m.all))])
		case 1:
			m.s.DropOf(uint32(pick(3)), []string{m.all[0].Scope, "all"}[pick(2)])
		case 2:
			m.converse()
		}
	}
	m.drain()
	return m
}

// Whatever joins, moves between pages and tiers, is evicted, loaded and cancelled, each row reads what it must, and
// every sequence ends. RAPID_CHECKS lengthens the test.
func TestEveryRowReadsItsOwnValues(t *testing.T) {
	var found, partial, out, stored, loaded, moved, drafted, stood, masked, mixed, padded uint64
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		for range 16 {
			m := randomLoad(pick, t.Fatalf, nil)
			st, movedOut, _ := m.s.Cache()
			out, stored, loaded, moved = out+movedOut, stored+st.Stored, loaded+st.Loaded, moved+m.s.epoch
			drafted, stood = drafted+uint64(m.drafted), stood+uint64(m.stood)
			masked += uint64(m.maskedStood)
			mixed, padded = mixed+uint64(m.mixed), padded+uint64(m.padded)
			for _, q := range m.all {
				found += uint64(q.Cached())
				partial += uint64(min(1, q.Cached()%m.s.PageTokens))
			}
		}
	})
	t.Logf("%d tokens and %d partial pages found, %d pages stored, %d loaded, %d moved, %d sequences moved out, "+
		"%d of %d drafts stood, %d of them of masked sequences, %d mixed steps, %d of them with padding", found, partial, stored,
		loaded, moved, out, stood, drafted, masked, mixed, padded)
	if !t.Failed() && min(found, partial, out, stored, loaded, moved, stood, drafted-stood, masked, mixed, padded) == 0 {
		t.Error("some event that this test needs never happened")
	}
}

// With a guard off, some row reads what it must not.
func TestRowsReadWrongValuesWithAGuardOff(t *testing.T) {
	for name, plant := range map[string]func(*simulation){
		"no fence of loads":                       withoutFence,
		"no user in the root":                     withoutUser,
		"a page with a sampled token is found":    withSampledPages,
		"the page of the last prompt token, too":  withLastToken,
		"steps older than a move are not rebuilt": func(m *simulation) { m.keepStale = true },
		"rows do not wait for masks":              withoutMasks,
		"steps do not wait for moves":             func(m *simulation) { m.keepEarly = true },
		"refused drafts stay counted":             func(m *simulation) { m.accepted = func(*Sequence, int, int) {} },
		"refused drafts stay in the length":       func(m *simulation) { m.accepted = withoutLength },
		"refused drafts stay sampled":             func(m *simulation) { m.accepted = withoutSampled },
		"drafts past the last token":              withDraftsPastTheEnd,
		"drafts without pages":                    withDraftsWithoutPages,
		"masked sequences get other drafts":       withMaskedDrafts,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				if fault := firstFault(seed, plant); fault != "" {
					t.Logf("load %d: %s", seed, fault)
					return
				}
			}
			t.Error("no fault was found")
		})
	}
}

// faultFound ends a simulation with a planted fault.
type faultFound string

// firstFault returns the first fault of a random load.
func firstFault(seed uint64, plant func(*simulation)) (fault faultFound) {
	defer func() {
		switch r := recover().(type) {
		case faultFound:
			fault = r
		case runtime.Error: // the scheduler met what cannot be
			fault = faultFound(r.Error())
		case any:
			panic(r)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 1))
	randomLoad(r.IntN, func(format string, args ...any) { panic(faultFound(fmt.Sprintf(format, args...))) }, plant)
	return ""
}

// withoutFence lets steps name sequences whose pages are being copied.
func withoutFence(m *simulation) {
	saved := map[*Sequence]int{}
	m.before = func() {
		for _, q := range m.s.running {
			saved[q], q.moving = q.moving, 0
		}
	}
	m.after = func() {
		for q, n := range saved {
			q.moving += n
		}
		clear(saved)
	}
}

// withoutMasks forms rows before their masks are there.
func withoutMasks(m *simulation) {
	m.before = func() {
		for _, q := range m.s.running {
			q.Allow(nil)
		}
	}
}

// withoutUser gives all users one scope, though their values differ.
func withoutUser(m *simulation) {
	m.before = func() {
		for _, q := range m.all {
			if q.state == waiting && q.Scope != "" {
				q.Scope = "all"
			}
		}
	}
}

// withSampledPages publishes pages that hold sampled tokens.
func withSampledPages(m *simulation) {
	m.after = func() {
		page := m.s.PageTokens
		for _, q := range m.s.running {
			nodes := m.chain(q, m.texts[q].tokens[:q.length])
			i := len(nodes)
			if q.state != decoding || !q.chained() || i >= q.length/page || i < len(q.Prompt)/page {
				continue
			}
			parent := m.s.pages.Root(q.Scope)
			if i > 0 {
				parent = nodes[i-1]
			}
			m.s.pages.Publish(parent, m.texts[q].tokens[i*page:][:page], q.pages[i], 0, uint64(q.User.UID))
		}
	}
}

// withLastToken lets prompts find the page that their last token fills.
func withLastToken(m *simulation) {
	m.before = func() {
		for _, q := range m.all {
			if nodes := m.chain(q, q.Prompt); q.state == waiting && len(nodes)*m.s.PageTokens == len(q.Prompt) {
				q.found = nodes
			}
		}
	}
}

// chain returns the pages of tokens that are in the chains of q's scope and not being loaded.
func (m *simulation) chain(q *Sequence, tokens []int32) (nodes []*kv.Node) {
	n := m.s.pages.Root(q.Scope)
	for i := m.s.PageTokens; i <= len(tokens) && q.Scope != ""; i += m.s.PageTokens {
		if n = m.s.pages.Find(n, tokens[i-m.s.PageTokens:i]); n == nil || n.Loading() {
			break
		}
		nodes = append(nodes, n)
	}
	return nodes
}
