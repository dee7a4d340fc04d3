package scheduler

import (
	"fmt"
	"testing"
)

// ofOneUID and ofEach return the i-th of some users: names of one uid, and uids.
func ofOneUID(i int) User { return User{1, fmt.Sprint("key ", i)} }
func ofEach(i int) User   { return User{uint32(100 + i), ""} }

// busy keeps a number of sequences of each user in the scheduler for some steps, and counts the tokens of those that
// ended.
func busy(t *testing.T, o Options, of map[User]int, make func() *Sequence) (tokens map[User]int) {
	t.Helper()
	s, sampled := mustNew(t, o), map[*Sequence]int{}
	tokens = map[User]int{}
	add := func(user User) {
		q := make()
		if q.User = user; s.Add(q) != nil {
			t.Fatal("the queue is full")
		}
	}
	for user, n := range of {
		for range n {
			add(user)
		}
	}
	for range 4000 {
		for _, q := range finish(s, s.Next(), sampled) {
			tokens[q.User] += len(q.Prompt) + q.MaxTokens
			delete(sampled, q)
			add(q.User)
		}
	}
	return tokens
}

// 64 names of one uid get no more than the uid's share beside another uid, of slots, prompts and pages, and divide it.
// If each were a uid they would get more.
func TestNamesDivideTheirUsersShare(t *testing.T) {
	const names = 64
	other := User{UID: 2}
	for what, c := range map[string]struct{ slots, pages, prompt, tokens int }{
		"slots": {4, 64, 4, 12}, "prompts": {4, 64, 48, 1}, "pages": {16, 32, 4, 12},
	} {
		for guarded, user := range map[bool]func(int) User{true: ofOneUID, false: ofEach} {
			o := small()
			o.MaxQueue, o.MaxBatch, o.Pages = 300, c.slots, c.pages
			of := map[User]int{other: 8}
			for i := range names {
				of[user(i)] = 2
			}
			tokens := busy(t, o, of, func() *Sequence { return &Sequence{Prompt: prompt(c.prompt), MaxTokens: c.tokens} })
			all, least, most := 0, 1<<30, 0
			for i := range names {
				n := tokens[user(i)]
				all, least, most = all+n, min(least, n), max(most, n)
			}
			share := 2 * float64(tokens[other]) / float64(all+tokens[other])
			if fair := share > 0.8 && share < 1.25; fair != guarded || least*2 < most {
				t.Errorf("%s, of one uid %v: another uid got %.2f of a half, the names %d to %d", what, guarded, share, least, most)
			}
		}
	}
}

// A name with 25 times another's requests leaves the other at least 80% of half of their uid's share, and another uid
// half of everything.
func TestNamesShareTheirUsersPart(t *testing.T) {
	o := small()
	o.MaxQueue, o.Pages = 300, 100
	many, few, other := User{1, "many"}, User{1, ""}, User{2, "many"}
	got := busy(t, o, map[User]int{many: 200, few: 8, other: 8},
		func() *Sequence { return &Sequence{Prompt: prompt(4), MaxTokens: 12} })
	both := got[many] + got[few]
	if 5*got[few] < 4*got[many] || 4*got[few] > 5*got[many] || 5*got[other] < 4*both || 4*got[other] > 5*both {
		t.Errorf("%v", got)
	}
}

// A further name of a uid takes no slot of the reserve, which a further uid gets.
func TestNamesTakeNothingOfTheReserve(t *testing.T) {
	for user, joins := range map[User]bool{{1, "new"}: false, {2, ""}: true} {
		s := mustNew(t, Options{MaxBatch: 2, Reserve: 1, ReservePages: 2, MaxQueue: 10, Chunk: 10, Context: 40,
			PageTokens: 4, Pages: 30, InFlight: 2})
		for i := range 2 {
			_ = s.Add(&Sequence{Prompt: prompt(4), MaxTokens: 30, User: ofOneUID(i)})
		}
		s.Complete(s.Next().Step.Number)
		q := &Sequence{Prompt: prompt(4), MaxTokens: 2, User: user}
		_ = s.Add(q)
		s.Complete(s.Next().Step.Number)
		if q.Running() != joins {
			t.Errorf("%v joins: %v", user, q.Running())
		}
	}
}

// Of a uid that holds most, the name that holds most gives up its youngest sequence, though another name's is younger.
func TestNameThatHoldsMostMovesOut(t *testing.T) {
	o := small()
	o.MaxBatch, o.Pages, o.Context = 8, 48, 60
	s := mustNew(t, o)
	s.AddPlaces(200)
	var all []*Sequence
	for _, user := range []User{{1, "many"}, {1, "many"}, {1, "many"}, {1, "few"}, {2, "few"}} {
		q := &Sequence{Prompt: prompt(4), MaxTokens: 50, User: user}
		all = append(all, q)
		_ = s.Add(q)
	}
	tokens := map[*Sequence]int{}
	for range 1000 {
		if b := s.Next(); b != nil {
			finish(s, b, tokens)
		}
		if copyAll(s); len(s.moving)+len(s.out) > 0 {
			break
		}
	}
	for i, q := range all {
		if out := q.state == movingOut || q.state == out; out != (i == 2) {
			t.Errorf("sequence %d of %v moves out: %v", i, q.User, out)
		}
	}
}

// Names leave nothing behind.
func TestNamesAreForgotten(t *testing.T) {
	s := mustNew(t, small())
	for i := range 1000 {
		q := &Sequence{Prompt: prompt(1), MaxTokens: 1, User: ofOneUID(i)}
		if s.Add(q) != nil {
			t.Fatal("the queue is full")
		}
		s.Remove(q)
	}
	if len(s.root.children) != 0 || len(s.oldShares) > 3 {
		t.Errorf("%d users and %d old shares are left", len(s.root.children), len(s.oldShares))
	}
}
