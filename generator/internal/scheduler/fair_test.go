package scheduler

import (
	"strconv"
	"testing"
)

// crowd keeps the number of each user's sequences in the scheduler constant, and counts the tokens that each user
// gets.
type crowd struct {
	s       *Scheduler
	make    func(user uint32) *Sequence
	sampled map[*Sequence]int
	tokens  map[uint32]int // prompt and sampled tokens of ended sequences, by user
}

func newCrowd(t *testing.T, o Options, many func(user uint32) *Sequence, of map[uint32]int) *crowd {
	c := &crowd{s: mustNew(t, o), make: many, sampled: map[*Sequence]int{}, tokens: map[uint32]int{}}
	for _, user := range []uint32{1, 2, 3} { // users with many sequences come first
		for range of[user] {
			c.add(t, user)
		}
	}
	return c
}

func (c *crowd) add(t *testing.T, user uint32) {
	t.Helper()
	q := c.make(user)
	q.User.UID = user
	if err := c.s.Add(q); err != nil {
		t.Fatal(err)
	}
}

// run runs steps. For each sequence that ends it adds another of the same user.
func (c *crowd) run(t *testing.T, steps int) {
	t.Helper()
	for range steps {
		for _, q := range finish(c.s, c.s.Next(), c.sampled) {
			c.tokens[q.User.UID] += len(q.Prompt) + q.MaxTokens
			delete(c.sampled, q)
			c.add(t, q.User.UID)
		}
	}
}

// A user with 50 times another's requests leaves the other at least 80% of an equal share, if the throughput is
// limited by slots, by one slot, by prompts, or by pages.
func TestManyRequestsTakeNoShareFromOthers(t *testing.T) {
	of := map[uint32]int{1: 200, 2: 4}
	for name, c := range map[string]struct {
		slots, pages, prompt, tokens int
	}{
		"slots":    {4, 64, 4, 12},
		"one slot": {1, 64, 4, 12},
		"prompts":  {4, 64, 48, 1},
		"pages":    {16, 32, 4, 12},
	} {
		o := small()
		o.MaxQueue, o.MaxBatch, o.Pages = 300, c.slots, c.pages
		sequence := func(uint32) *Sequence { return &Sequence{Prompt: prompt(c.prompt), MaxTokens: c.tokens} }
		crowd := newCrowd(t, o, sequence, of)
		crowd.run(t, 4000)
		all := crowd.tokens[1] + crowd.tokens[2]
		if share := 2 * float64(crowd.tokens[2]) / float64(all); share < 0.8 || share > 1.25 {
			t.Errorf("%s: the user with few requests got %.2f of a half", name, share)
		}
	}
}

// A user's short prompt is in the next chunk, beside many long ones of another user.
func TestOnePromptBesideManyLongOnes(t *testing.T) {
	o := small()
	o.MaxBatch, o.Pages = 8, 200
	s := mustNew(t, o)
	for range 7 {
		_ = s.Add(&Sequence{Prompt: prompt(60), MaxTokens: 4, User: User{UID: 1}})
	}
	s.Complete(s.Next().Step.Number)
	q := &Sequence{Prompt: prompt(4), MaxTokens: 4, User: User{UID: 2}}
	_ = s.Add(q)
	for steps := 1; q.prefilled == 0; steps++ {
		s.Complete(s.Next().Step.Number)
		if steps > 1 {
			t.Fatal("it still waits after the next step")
		}
	}
}

// Three users share as two do, and a user that comes late earns nothing for the time before.
func TestIdleTimeEarnsNoCredit(t *testing.T) {
	o := small()
	o.MaxQueue, o.MaxBatch = 300, 1
	sequence := func(uint32) *Sequence { return &Sequence{Prompt: prompt(4), MaxTokens: 4} }
	crowd := newCrowd(t, o, sequence, map[uint32]int{1: 100, 2: 2})
	crowd.run(t, 900)
	crowd.tokens = map[uint32]int{}
	crowd.add(t, 3)
	crowd.add(t, 3)
	crowd.run(t, 900)
	all := float64(crowd.tokens[1] + crowd.tokens[2] + crowd.tokens[3])
	for user, tokens := range crowd.tokens {
		if share := 3 * float64(tokens) / all; share < 0.8 || share > 1.25 {
			t.Errorf("user %d got %.2f of a third", user, share)
		}
	}
}

func TestSharesGoWithTheirSequences(t *testing.T) {
	s := mustNew(t, small())
	running := &Sequence{Prompt: prompt(4), MaxTokens: 4, User: User{UID: 1}}
	waiting := &Sequence{Prompt: prompt(4), MaxTokens: 4, User: User{UID: 2}}
	_ = s.Add(running)
	b := s.Next()
	_ = s.Add(waiting)
	s.Remove(waiting)
	s.Remove(running)
	s.Complete(b.Step.Number)
	if len(s.root.children) != 0 {
		t.Errorf("%d shares are left", len(s.root.children))
	}
	s.Remove(&Sequence{User: User{UID: 3}}) // was never added
}

// A connection with 64 long requests delays a short request on another connection of the same user neither for a
// slot nor for its prompt. On the same connection the short one comes last.
func TestConnectionsOfAUserTakeTurns(t *testing.T) {
	for _, connection := range []uint64{2, 1} {
		o := small()
		o.MaxBatch, o.Pages = 8, 200
		s := mustNew(t, o)
		for range 64 {
			_ = s.Add(&Sequence{Prompt: prompt(60), MaxTokens: 4, Connection: 1})
		}
		s.Complete(s.Next().Step.Number)
		short := &Sequence{Prompt: prompt(4), MaxTokens: 4, Connection: connection}
		_ = s.Add(short)
		tokens, ended := map[*Sequence]int{}, 0
		for ; ended == 0 && short.prefilled == 0; ended += len(finish(s, s.Next(), tokens)) {
		}
		for more := 0; short.prefilled == 0 && more < 3; more++ { // a slot is free
			finish(s, s.Next(), tokens)
		}
		if through := short.prefilled > 0; through != (connection == 2) {
			t.Errorf("connection %d: the short prompt went through at the first free slot: %v", connection, through)
		}
	}
}

// A connection with 50 times another's requests leaves the other at least 80% of half of their user's share, and
// another user half of everything.
func TestConnectionsShareTheirUsersPart(t *testing.T) {
	o := small()
	o.MaxQueue, o.Pages = 300, 100
	s, tokens, served := mustNew(t, o), map[*Sequence]int{}, map[[2]uint64]int{}
	add := func(user uint32, connection uint64) {
		_ = s.Add(&Sequence{Prompt: prompt(4), MaxTokens: 12, User: User{UID: user}, Connection: connection})
	}
	for range 200 {
		add(1, 1)
	}
	for range 8 {
		add(1, 2)
		add(2, 3)
	}
	for range 6000 {
		for _, q := range finish(s, s.Next(), tokens) {
			served[[2]uint64{uint64(q.User.UID), q.Connection}]++
			delete(tokens, q)
			add(q.User.UID, q.Connection)
		}
	}
	got := func(user, connection uint64) float64 { return float64(served[[2]uint64{user, connection}]) }
	many, few, other := got(1, 1), got(1, 2), got(2, 3)
	if few < 0.8*many || few > 1.25*many || other < 0.8*(many+few) || other > 1.25*(many+few) {
		t.Errorf("the user's connections got %v and %v requests through, another user %v", many, few, other)
	}
}

// Of two prompts as long as each other the first is done as soon as it would be alone, whoever sends the second.
func TestTheSecondPromptDoesNotHoldUpTheFirst(t *testing.T) {
	for _, other := range []Sequence{{Connection: 2}, {User: User{Name: "b"}}, {User: User{UID: 1}}} {
		s := mustNew(t, small())
		first := &Sequence{Prompt: prompt(48), MaxTokens: 4}
		other.Prompt, other.MaxTokens = prompt(48), 4
		_ = s.Add(first)
		b := s.Next()
		_ = s.Add(&other)
		for steps := 1; ; steps++ {
			s.Complete(b.Step.Number)
			if b = s.Next(); first.prefilled < 16*(steps+1) {
				t.Fatalf("beside %+v %d tokens are computed after %d steps", other.User, first.prefilled, steps+1)
			}
			if first.prefilled == 48 {
				break
			}
		}
	}
}

// A long prompt ends though short ones come without end, each by a connection, a name or a user of its own, and some by the
// long one's. Up to 16 others wait or run at a time, and at most 16 times its tokens are computed of theirs. That holds however
// long others drew tokens, or had prompts, before.
func TestShortPromptsWithoutEndPassALongOne(t *testing.T) {
	for name, own := range map[string]func(q *Sequence, n uint64){
		"connections": func(q *Sequence, n uint64) { q.Connection = n },
		"names":       func(q *Sequence, n uint64) { q.User.Name = strconv.FormatUint(n, 10) },
		"users":       func(q *Sequence, n uint64) { q.User.UID = uint32(n) },
	} {
		for _, before := range []int{0, 2000} {
			s, sampled, others := manyPrompts(t), map[*Sequence]int{}, uint64(2)
			step := func() (done []*Sequence) {
				done = finish(s, s.Next(), sampled)
				for _, q := range done {
					delete(sampled, q)
				}
				return done
			}
			add := func(party uint64, tokens, drawn int) *Sequence {
				q := &Sequence{Prompt: prompt(tokens), MaxTokens: drawn}
				own(q, party)
				s.addAll(t, q)
				return q
			}
			add(1, 1, 4000)
			add(2, 256, 1)
			add(2, 256, 1)
			for range before {
				for range step() {
					add(2, 256, 1)
				}
			}
			long := add(2, 2000, 1)
			for steps := 0; long.sampled == 0; steps++ {
				if steps%200 == 0 {
					add(2, 16, 1)
				}
				for s.root.queued < 8 {
					others++
					add(others, 16, 1)
				}
				step()
				if others > 16*(2000+2*256+5*16)/16 {
					t.Fatalf("%s, %d steps before: after %d steps and %d short prompts %d tokens are computed", name, before, steps,
						others, long.prefilled)
				}
			}
		}
	}
}

// manyPrompts returns a scheduler for prompts of up to 4,096 tokens, in chunks of 64.
func manyPrompts(t *testing.T) *Scheduler {
	o := small()
	o.MaxBatch, o.Chunk, o.Context, o.Pages, o.MaxQueue = 8, 64, 4096, 4096, 1000
	return mustNew(t, o)
}

// A connection that drew tokens for long, or had a prompt that waited for its mask, has no credit from that: then its prompts
// and another connection's share the steps alike.
func TestConnectionsShareAlikeAfterTheOneWaited(t *testing.T) {
	for name, first := range map[string]*Sequence{
		"drew tokens": {Prompt: prompt(1), MaxTokens: 3000}, "has no mask": {Prompt: prompt(16), MaxTokens: 1},
	} {
		for others := 1; others <= 2; others++ {
			s, sampled, rows := manyPrompts(t), map[*Sequence]int{}, map[uint64]int{}
			add := func(connection uint64) {
				s.addAll(t, &Sequence{Prompt: prompt(256), MaxTokens: 1, Connection: connection})
			}
			run := func(steps int) {
				for range steps {
					for _, q := range finish(s, s.Next(), sampled) {
						delete(sampled, q)
						if len(q.Prompt) == 256 {
							rows[q.Connection] += 256
							add(q.Connection)
						}
					}
				}
			}
			own := &Sequence{Prompt: first.Prompt, MaxTokens: first.MaxTokens, Connection: 1}
			own.Sampling.Masked = own.MaxTokens == 1
			s.addAll(t, own)
			for range others {
				add(2)
			}
			run(1000)
			clear(rows)
			own.Allow(nil)
			add(1)
			add(1)
			run(400)
			if part := float64(rows[1]) / float64(rows[1]+rows[2]); part < 0.4 || part > 0.6 {
				t.Errorf("%s, beside %d: prompts have %v rows of the two connections", name, others, rows)
			}
		}
	}
}
