package engine

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// reread rereads a text and waits until that is done.
func (b *testEngine) reread(user uint32, text []int32) {
	b.t.Helper()
	b.Reread(User{UID: user}, text)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Microsecond) {
		b.mu.Lock()
		left := len(b.rereads.waiting)
		b.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatal("a text is not reread")
		}
	}
}

// ids returns the ids of tokens.
func ids(all []Token) (list []int32) {
	for _, t := range all {
		list = append(list, t.ID)
	}
	return list
}

// foundOf returns how many tokens a prompt finds of a history that was reread: all, if they fill a page at least.
func foundOf(history, pageTokens int) int {
	if history < pageTokens {
		return 0
	}
	return history
}

// The turns of a conversation find all of prompt and answer before them, and have the tokens and
// log-probabilities that they have without a cache, bit for bit, with pages of any size.
func TestNextTurnFindsWhatWasReread(t *testing.T) {
	r := seeded(t)
	reference := newAlone(t)
	var reread uint64
	for range 20 {
		o := nano()
		o.PageTokens = 1 + r.IntN(8)
		b := built(t, device.HostOptions{}, o, nil)
		b.run()
		var turn []int32
		for i := 0; len(turn) < 40; i++ {
			history := len(turn)
			for range 1 + r.IntN(9) {
				turn = append(turn, int32(r.IntN(16)))
			}
			q := Request{Tokens: slices.Clone(turn), MaxTokens: 1 + r.IntN(9), Sampling: sampled(uint64(i))}
			s := b.complete(q)
			if want := reference.answer(q); !slices.EqualFunc(s.tokens, want, sameToken) {
				t.Fatalf("turn %d:\n   got %v\n alone %v", i, s.tokens, want)
			}
			if found, want := s.finish.Usage.CachedTokens, foundOf(history, o.PageTokens); found != want {
				t.Fatalf("turn %d found %d tokens of a history of %d in pages of %d", i, found, history, o.PageTokens)
			}
			turn = append(turn, ids(s.tokens)...)
			b.reread(0, turn)
		}
		reread += b.Stats().Steps.RereadTokens
		if err := b.finish(); err != nil {
			t.Error(err)
		}
		b.baseline()
	}
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
	if reread == 0 {
		t.Error("nothing was reread")
	}
}

// Random conversations of three users, reread at any moment, in a pool too small for them, have the tokens that they
// have without a cache, bit for bit.
func TestRereadingChangesNoToken(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	reference := newAlone(t)
	var reread uint64
	for range 12 {
		o, host := randomBounds(r)
		o.CacheScope = CacheScope(r.IntN(2))
		o.HostCache, o.slabPages = int64(r.IntN(2)*r.IntN(100)*64*o.PageTokens), 1+r.IntN(20)
		randomDrafts(r, &o)
		b := built(t, host, o, nil)
		b.run()
		answers, begin := make([][]Token, 6), []int32{1, 2, 3, 4, 5, 6, 7}
		var all []*conversation
		for i := range answers {
			all = append(all, &conversation{r: r, begin: begin, turn: slices.Clone(begin), user: uint32(i % 3),
				seed: r.Uint64()})
		}
		for range 4 {
			requests, sinks := submitTurns(b, r, all, answers, 50, func(q *Request) { q.DraftTokens = r.IntN(8) })
			for i, s := range sinks {
				<-s.ended
				answers[i] = reference.answer(requests[i])
				if !slices.EqualFunc(s.tokens, answers[i][:len(s.tokens)], sameToken) {
					t.Fatalf("%+v\n request %+v\n   got %v %+v\n alone %v", o, requests[i], s.tokens, s.finish,
						answers[i])
				}
				b.Reread(requests[i].User, append(requests[i].Tokens, ids(answers[i])...))
			}
			time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
		}
		if err := b.finish(); err != nil { // with texts that wait
			t.Error(err)
		}
		b.baseline()
		reread += b.Stats().Steps.RereadTokens
	}
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
	if reread == 0 {
		t.Error("nothing was reread")
	}
}

// stepped returns an engine that the test drives step by step.
func stepped(t *testing.T, o Options) *testEngine {
	t.Helper()
	b := built(t, device.HostOptions{}, o, nil)
	t.Cleanup(func() {
		b.finishAll(ErrShutdown)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b.returned()
	})
	return b
}

// turn applies the commands and enqueues steps, as the loop does before it waits. It returns the steps in flight.
func (b *testEngine) turn() []stepInFlight {
	b.t.Helper()
	commands, _, err := b.takeCommands()
	for _, call := range []func() error{
		func() error { return b.apply(commands, err) }, b.formAndEnqueue, b.enqueueHeartbeat, b.enqueueReread,
	} {
		if err := call(); err != nil {
			b.t.Fatal(err)
		}
	}
	return b.inFlight
}

// hasEnded reports whether the request has ended.
func (s *sink) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// text is a text of 40 tokens of the nano model.
func text(first int32) (tokens []int32) {
	for i := range int32(40) {
		tokens = append(tokens, (first+i*7)%16)
	}
	return tokens
}

// A request that comes during rereading waits for the one step in flight. No other step rereads before its end, and
// it is the only request that status shows.
func TestRequestWaitsForOneStepOfRereading(t *testing.T) {
	b := stepped(t, nano())
	before, _ := b.submit(Request{Tokens: text(3), MaxTokens: 1})
	b.Reread(User{UID: 1}, text(1))
	if err := b.enqueueReread(); err != nil || len(b.inFlight) != 0 {
		t.Fatalf("%v, or a step rereads although a request has been submitted", err)
	}
	for !before.hasEnded() {
		b.turn()
		if err := b.completeStep(); err != nil {
			t.Fatal(err)
		}
	}
	if in := b.turn(); len(in) != 1 || in[0].batch.Reread == nil || len(in[0].batch.Step.Rows) != 8 {
		t.Fatalf("%d steps in flight, wants one that rereads a chunk", len(in))
	}
	b.publish()
	if s := b.Stats().Requests; s.Running+s.Waiting != 0 {
		t.Errorf("rereading counts as a request: %+v", s)
	}
	s, _ := b.submit(Request{Tokens: text(2), MaxTokens: 3, User: User{UID: 2}})
	if in := b.turn(); len(in) != 1 {
		t.Fatalf("%d steps in flight, wants the one that rereads", len(in))
	}
	if err := b.completeStep(); err != nil {
		t.Fatal(err)
	}
	for !s.hasEnded() {
		if in := b.turn(); in[0].batch.Reread != nil {
			t.Fatal("a step rereads while a request waits")
		}
		if err := b.completeStep(); err != nil {
			t.Fatal(err)
		}
	}
	for len(b.inFlight) > 0 {
		if err := b.completeStep(); err != nil {
			t.Fatal(err)
		}
	}
	if in := b.turn(); len(in) != 1 || in[0].batch.Reread == nil {
		t.Error("rereading does not go on after the request")
	}
}

// A step that rereads is the only one in flight: the engine's next heartbeat comes before it.
func TestOneStepInFlightRereads(t *testing.T) {
	b := stepped(t, nano())
	b.Heartbeat(func() {})
	b.Reread(User{UID: 1}, text(1))
	for _, reread := range []bool{false, true} {
		if in := b.turn(); len(in) != 1 || (in[0].batch.Reread != nil) != reread {
			t.Fatalf("%d steps in flight", len(in))
		}
		if err := b.completeStep(); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing is reread while a request is expected; without one, rereading goes on after a moment.
func TestRereadingWaitsForAnExpectedRequest(t *testing.T) {
	b := stepped(t, nano())
	b.Expect()
	b.Reread(User{UID: 1}, text(1))
	if in := b.turn(); len(in) != 0 {
		t.Fatal("a step rereads while a request is expected")
	}
	if pause, any := b.rereads.pending(); !any || pause <= 0 || pause > expectTime {
		t.Errorf("a pause of %v", pause)
	}
	begun := time.Now()
	defer time.AfterFunc(5*time.Second, func() { b.Heartbeat(func() {}) }).Stop()
	if err := b.waitForWork(); err != nil || time.Since(begun) > 4*time.Second {
		t.Errorf("waited %v, %v", time.Since(begun), err)
	}
	if in := b.turn(); len(in) != 1 || in[0].batch.Reread == nil {
		t.Error("rereading does not go on when the time is over")
	}
}

// cached asks for a user's pages, without waiting for the answer.
func (b *testEngine) cached(user uint32, drop bool) {
	b.t.Helper()
	if err := b.ask(&question{user: User{UID: user}, drop: drop, answer: make(chan protocol.Cached, 1)}); err != nil {
		b.t.Fatal(err)
	}
}

// A text is not reread when a request or another text of its user begins with it, or its user drops its pages.
func TestSupersededTextIsDropped(t *testing.T) {
	long := append(text(1), 1, 2, 3)
	for name, c := range map[string]struct {
		next func(*testEngine)
		left int
	}{
		"its request":        {func(b *testEngine) { b.submit(Request{Tokens: long, MaxTokens: 1, User: User{UID: 1}}) }, 0},
		"another user's":     {func(b *testEngine) { b.submit(Request{Tokens: long, MaxTokens: 1, User: User{UID: 2}}) }, 1},
		"another request":    {func(b *testEngine) { b.submit(Request{Tokens: text(2), MaxTokens: 1, User: User{UID: 1}}) }, 1},
		"a shorter request":  {func(b *testEngine) { b.submit(Request{Tokens: long[:39], MaxTokens: 1, User: User{UID: 1}}) }, 1},
		"its next turn":      {func(b *testEngine) { b.Reread(User{UID: 1}, long) }, 1},
		"its user's drop":    {func(b *testEngine) { b.cached(1, true) }, 0},
		"its user's list":    {func(b *testEngine) { b.cached(1, false) }, 1},
		"another's drop":     {func(b *testEngine) { b.cached(2, true) }, 1},
		"another one's text": {func(b *testEngine) { b.Reread(User{UID: 1}, text(2)) }, 2},
	} {
		for _, begun := range []bool{false, true} {
			b := stepped(t, nano())
			b.Reread(User{UID: 1}, text(1))
			if begun {
				b.turn()
			}
			c.next(b)
			if n := len(b.rereads.waiting); n != c.left {
				t.Errorf("%s: %d texts wait, wants %d", name, n, c.left)
			}
			if begun {
				if err := b.completeStep(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Texts that no prompt can find, and those of an engine that cannot reread, are not kept.
func TestUselessTextsAreIgnored(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no cache":      func(o *Options) { o.CacheScope = ScopeOff },
		"one slot":      func(o *Options) { o.MaxBatch = 1 },
		"small chunk":   func(o *Options) { o.Chunk = 3 },
		"small context": func(o *Options) { o.Context = 40 },
	} {
		o := nano()
		change(&o)
		b := stepped(t, o)
		if b.Reread(User{UID: 1}, text(1)); len(b.rereads.waiting) != 0 {
			t.Errorf("%s: the text waits", name)
		}
	}
}

// The texts that wait are bounded by number and by tokens. The user with the most loses its oldest, and of a user
// the name with the most.
func TestTextsThatWaitAreBounded(t *testing.T) {
	wait := func(q *rereads, user User, tokens int) *reread {
		r := &reread{}
		r.scheduled.User, r.scheduled.Prompt = user, make([]int32, tokens+1)
		q.add(r)
		return r
	}
	for name, size := range map[string]int{"number": 10, "tokens": maxRereadTokens / 4} {
		q := &rereads{}
		kept, named, first := wait(q, User{UID: 2}, size), wait(q, nameOf(1, "key"), size), wait(q, User{UID: 1}, size)
		var last *reread
		for range 100 {
			last = wait(q, User{UID: 1}, size)
		}
		if len(q.waiting) > maxRereads || q.tokens() > maxRereadTokens {
			t.Errorf("%s: %d texts wait, %d tokens", name, len(q.waiting), q.tokens())
		}
		if !slices.Contains(q.waiting, kept) || !slices.Contains(q.waiting, named) ||
			slices.Contains(q.waiting, first) || !slices.Contains(q.waiting, last) {
			t.Errorf("%s: wants the other user's text, the other name's, and the latest", name)
		}
		for i := range 100 { // a name each
			last = wait(q, nameOf(1, strconv.Itoa(i)), size)
		}
		if !slices.Contains(q.waiting, kept) || !slices.Contains(q.waiting, last) || len(q.waiting) > maxRereads {
			t.Errorf("%s, many names: wants the other user's text and the latest", name)
		}
	}
}

// Users' texts alternate, whoever has more, and so do those of a user's names.
func TestUsersTextsAlternate(t *testing.T) {
	b := stepped(t, nano())
	for i := range int32(3) {
		b.Reread(User{UID: 1}, append(text(i), 1))
	}
	b.Reread(User{UID: 2}, text(9))
	b.Reread(nameOf(1, "key"), text(8))
	var users []User
	for len(b.rereads.waiting) > 0 {
		users = append(users, b.rereads.next().scheduled.User)
		b.rereads.done(b.rereads.next())
	}
	if !slices.Equal(users, []User{{UID: 1}, {UID: 2}, {UID: 1}, nameOf(1, "key"), {UID: 1}}) {
		t.Errorf("the order of users is %v", users)
	}
}

// Texts that are reread or wait keep nothing of an engine that stops or fails, at any moment.
func TestStopWhileRereading(t *testing.T) {
	for i := range 30 {
		b := built(t, device.HostOptions{}, nano(), nil)
		b.run()
		for user := range uint32(5) {
			b.Reread(User{UID: user}, text(rand.Int32N(16)))
		}
		time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		if i%2 == 0 {
			b.Fail(ErrNumeric)
		}
		_ = b.finish()
		b.baseline()
	}
}
