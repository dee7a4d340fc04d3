package server

import (
	"strconv"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// A permit is for nobody only while no user holds or wants one. Users need not wait for another permit.
func TestSparePermits(t *testing.T) {
	s := newFairSemaphore(2, 1)
	s.acquire(uid(1))
	order := make(chan engine.User, 3)
	go func() {
		s.acquireSpare()
		order <- nobody
	}()
	eventually(t, "it waits", func() bool { return s.waiters() == 1 })
	s.acquire(uid(2))
	go func() {
		s.acquire(uid(3))
		order <- uid(3)
	}()
	eventually(t, "both wait", func() bool { return s.waiters() == 2 })
	s.release(uid(1))
	s.release(uid(2))
	if first := <-order; first != uid(3) {
		t.Fatalf("a permit went to %v", first)
	}
	s.release(uid(3))
	if <-order != nobody {
		t.Fatal("nobody got no permit")
	}
	s.acquire(uid(1)) // does not wait
	s.release(uid(1))
	s.release(nobody)
	if len(s.held)+len(s.last) != 0 || s.free != 2 {
		t.Errorf("left: %+v", s)
	}
}

// When a permit is free for a user and for nobody, the user gets it, whoever came first.
func TestUsersComeBeforeNobody(t *testing.T) {
	s := newFairSemaphore(1, 1)
	s.acquire(uid(1))
	order := make(chan engine.User, 2)
	for i, user := range []engine.User{nobody, uid(2)} {
		go func() {
			s.acquire(user)
			order <- user
		}()
		eventually(t, "it waits", func() bool { return s.waiters() == i+1 })
	}
	s.release(uid(1))
	if first := <-order; first != uid(2) {
		t.Errorf("a permit went to %v", first)
	}
	s.release(uid(2))
	<-order
	s.release(nobody)
}

// Answers that wait are bounded by number, of a user and of all. The oldest are dropped, of a user that of the name
// with
// most.
func TestAnswersThatWaitAreBounded(t *testing.T) {
	q := newRereader()
	wait := func(user engine.User) *answer {
		a := q.begin(&answer{user: user, text: make([]byte, 10)})
		q.add(a)
		return a
	}
	other := wait(uid(2))
	named := wait(engine.User{UID: 1, Name: "key"})
	var last *answer
	for range 100 {
		last = wait(uid(1))
	}
	if len(q.waiting) != 1+userAnswers || q.waiting[0] != other || q.waiting[1] != named ||
		q.waiting[userAnswers] != last {
		t.Errorf("%d answers wait, or another name's gave way", len(q.waiting))
	}
	for i := range 100 { // a name each
		last = wait(engine.User{UID: 1, Name: strconv.Itoa(i)})
	}
	if len(q.waiting) != 1+userAnswers || q.waiting[0] != other || q.waiting[userAnswers] != last {
		t.Errorf("%d answers of many names wait", len(q.waiting))
	}
	for user := range uint32(2 * maxAnswers) {
		wait(uid(user))
	}
	if len(q.waiting) != maxAnswers || q.bytes != 10*maxAnswers {
		t.Errorf("%d answers wait with %d bytes", len(q.waiting), q.bytes)
	}
}

// The bytes of answers are bounded from the begin of their requests on, of a user and of all.
func TestBytesOfAnswersAreBounded(t *testing.T) {
	q := newRereader()
	begin := func(user uint32, bytes int) *answer {
		message := protocol.Message{Role: "u"}
		if n := bytes - messageBytes - 1; n >= 0 {
			message.Content = strings.Repeat("x", n)
			return q.begin(&answer{user: uid(user), Conversation: Conversation{Messages: []protocol.Message{message}}})
		}
		return q.begin(&answer{user: uid(user), text: make([]byte, bytes)})
	}
	half := userAnswerBytes / 2
	first := begin(1, half)
	if first == nil || begin(1, half) == nil || begin(1, 1) != nil || begin(2, 1) == nil {
		t.Error("a user's answers hold other bytes than they may")
	}
	q.letGo(first)
	if begin(1, half) == nil || begin(1, 1) != nil {
		t.Error("the bytes of an answer are not given back")
	}
	q = newRereader()
	for user := range uint32(maxAnswerBytes / userAnswerBytes) {
		begin(user, userAnswerBytes)
	}
	full := protocol.Message{Reasoning: "12", Name: "3", ToolCallID: "4", ToolCalls: []protocol.ToolCall{{ID: "5",
		Name: "6", Arguments: "7"}}}
	a := answer{reasoning: []byte("89"), calls: []madeCall{{id: "a", name: "b", arguments: []byte("c")}},
		Conversation: Conversation{Tools: "de", Messages: []protocol.Message{full}}}
	if n := a.bytes() - 3*messageBytes; n != 14 {
		t.Errorf("the texts of an answer with calls hold %d bytes, want 14", n)
	}
	if q.begin(&answer{user: uid(98), Conversation: Conversation{Variables: protocol.Variables{"x": "y"}}}) != nil {
		t.Error("values for the template hold nothing")
	}
	if q.bytes != maxAnswerBytes || begin(99, 1) != nil {
		t.Errorf("all answers hold %d bytes and one more", q.bytes)
	}
}

// A request whose answer would hold too much is served, and not reread.
func TestAnswerIsNotKeptWithoutRoom(t *testing.T) {
	f, _ := startReread(t, RereadAll)
	f.Server.rereads.bytes = maxAnswerBytes
	f.engine.allow(0)
	c := f.client()
	c.send(generate(1, "abc", 3))
	eventually(t, "the request is admitted", func() bool {
		conn := f.onlyConn()
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.requests) == 1
	})
	f.Server.rereads.mu.Lock()
	f.Server.rereads.bytes = 0
	f.Server.rereads.mu.Unlock()
	f.engine.allow(-1)
	if got, err := c.collect(1); err != nil || got[1].done == nil {
		t.Errorf("%+v, %v", got, err)
	}
	c.ask(generate(2, "xyz", 2))
	if got := f.settled(); len(got) != 1 || got[0].tokens != "xyzxy" {
		t.Errorf("the engine rereads %+v", got)
	}
}

// However requests end, their answers hold nothing at last. One that has grown too large is not reread.
func TestAnswersHoldNothingAtLast(t *testing.T) {
	f, _ := startReread(t, RereadAll)
	c := f.client()
	f.engine.allow(0)
	for id := range uint64(12) {
		c.send(generate(id, "abc", 1+int(id%6)))
		c.send(conversation(100+id, 3, user("hi")))
	}
	c.send(generate(50, "!", 6)) // cannot be tokenized
	f.awaitLive(24)
	f.engine.mu.Lock()
	f.engine.refuse = engine.ErrBusy
	f.engine.mu.Unlock()
	c.send(generate(51, "abc", 6))
	for id := range uint64(3) {
		c.send(&protocol.Cancel{ID: id})
	}
	f.engine.allow(-1)
	if _, err := c.collect(26); err != nil {
		t.Fatal(err)
	}
	grown := &answer{model: f.phase.model, user: uid(7), tokens: make([]int32, userAnswerBytes/4+1)}
	f.Server.reread(grown, protocol.FinishStop)
	for _, r := range f.settled() {
		if r.user == uid(7) {
			t.Error("an answer is reread that has grown too large")
		}
	}
	if q := f.Server.rereads; q.bytes != 0 || len(q.of) != 0 {
		t.Errorf("answers hold %d bytes, by user %v", q.bytes, q.of)
	}
}
