package device

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// nothing is an op that runs fn on each rank.
type nothing struct{ fn *func(*Host) }

func (nothing) Kernel() string { return "nothing" }
func (nothing) Check() error   { return nil }
func (n nothing) Host(h *Host) { (*n.fn)(h) }

func opOf(fn func(*Host)) Op { return nothing{&fn} }

func newTestRanks(t *testing.T, n int, patience time.Duration) *HostRanks {
	t.Helper()
	r, err := NewHostRanks(n, patience, func(int) HostOptions { return HostOptions{Workers: 1, GraphBytes: 100} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// A buffer is memory of its own on each rank, but pinned memory is one; what was loaded for each is found there.
func TestBuffersOfRanks(t *testing.T) {
	r := newTestRanks(t, 3, 0)
	own, err := r.Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	shared, mapped, err := r.Pinned(4)
	if err != nil {
		t.Fatal(err)
	}
	each, err := r.Capabilities().Ranks.LoadEach([][]byte{{0, 1, 2, 3}, {10, 11, 12, 13}, {20, 21, 22, 23}})
	if err != nil {
		t.Fatal(err)
	}
	mapped.Bytes()[0] = 7
	for rank, h := range r.Hosts() {
		h.Bytes(own)[0] = byte(rank + 1)
		if h.Bytes(shared)[0] != 7 || h.Bytes(each)[0] != byte(10*rank) {
			t.Errorf("rank %d: %v, %v", rank, h.Bytes(shared), h.Bytes(each))
		}
	}
	read := make([]byte, 4)
	for rank := range 3 {
		if err := r.Capabilities().Ranks.Read(rank, read, own); err != nil || read[0] != byte(rank+1) {
			t.Errorf("rank %d: %v, %v", rank, read, err)
		}
	}
	before := r.Hosts()[2].Live()
	for _, b := range []Buffer{own, shared, each} {
		if err := r.Free(b); err != nil {
			t.Error(err)
		}
	}
	if after := r.Hosts()[2].Live(); after.Buffers != before.Buffers-3 {
		t.Errorf("%+v after the frees, before %+v", after, before)
	}
	if err := r.Free(own); !errors.Is(err, ErrBadBuffer) {
		t.Errorf("a second free: %v", err)
	}
}

// An allocation that one rank refuses is given back by the others.
func TestAllocationThatARankRefuses(t *testing.T) {
	r := newTestRanks(t, 3, 0)
	before := r.Hosts()[0].Live()
	r.Hosts()[1].Faults().FailAt(1, false)
	if _, err := r.Alloc(64); err == nil || errors.Is(err, ErrSticky) {
		t.Errorf("got %v", err)
	}
	if after := r.Hosts()[0].Live(); after != before {
		t.Errorf("%+v stayed, before %+v", after, before)
	}
	b, err := r.Alloc(64)
	if err != nil {
		t.Fatalf("the next one: %v", err)
	}
	if err := r.Free(b); err != nil {
		t.Error(err)
	}
}

// Ranks that do not allocate in one order are noticed at once.
func TestRanksOutOfOrderAreLost(t *testing.T) {
	r := newTestRanks(t, 2, 0)
	if _, err := r.Hosts()[1].Alloc(64); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Alloc(64); !errors.Is(err, ErrSticky) || !errors.Is(err, ErrRanks) {
		t.Errorf("got %v", err)
	}
}

// An op that reaches one rank and not the other ends the device; one in a capture fails the capture alone.
func TestAnOpThatReachesSomeRanks(t *testing.T) {
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	r := newTestRanks(t, 2, 0)
	s, err := r.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	r.Hosts()[1].Faults().FailAt(1, false)
	if err := s.Launch(opOf(func(*Host) {})); err == nil || errors.Is(err, ErrSticky) {
		t.Errorf("in a capture: %v", err)
	}
	if _, err := s.EndCapture(); !errors.Is(err, ErrEmptyCapture) {
		t.Errorf("the end of the capture: %v", err)
	}
	if live := r.Hosts()[0].Live(); live.Graphs != 0 {
		t.Errorf("the first rank has %d graphs of a capture that failed on the second", live.Graphs)
	}
	r.Hosts()[1].Faults().FailAt(1, false)
	if err := s.Launch(opOf(func(*Host) {})); !errors.Is(err, ErrSticky) {
		t.Errorf("outside: %v", err)
	}
}

// Events and streams wait for all ranks.
func TestWaitsForAllRanks(t *testing.T) {
	r := newTestRanks(t, 3, 0)
	s, err := r.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int32
	gate := make(chan struct{})
	if err := s.Launch(opOf(func(h *Host) {
		if h.Rank() == 2 {
			<-gate
		}
		ran.Add(1)
	})); err != nil {
		t.Fatal(err)
	}
	e, err := r.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Record(e); err != nil {
		t.Fatal(err)
	}
	if done, err := e.Done(); done || err != nil {
		t.Errorf("done is %v, %v while the last rank works", done, err)
	}
	close(gate)
	if err := e.Synchronize(); err != nil || ran.Load() != 3 {
		t.Errorf("%v after %d ranks", err, ran.Load())
	}
	if err := GiveBack(e.Destroy, s.Destroy); err != nil {
		t.Error(err)
	}
}

// A wait for a rank that hangs ends after the patience, and with it the device.
func TestARankThatHangs(t *testing.T) {
	r := newTestRanks(t, 3, 200*time.Millisecond)
	s, err := r.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	never := make(chan struct{})
	defer close(never)
	if err := s.Launch(opOf(func(h *Host) {
		if h.Rank() == 1 {
			<-never
		}
	})); err != nil {
		t.Fatal(err)
	}
	if err := s.Synchronize(); !errors.Is(err, ErrRanks) || !errors.Is(err, ErrSticky) {
		t.Errorf("a rank that hangs: %v", err)
	}
	if _, err := r.Alloc(1); !errors.Is(err, ErrSticky) {
		t.Errorf("a lost device allocates: %v", err)
	}
}

// slow is done after some looks at it; at each of them a rank reaches an exchange if it moves.
type slow struct {
	looks int
	moves bool
	r     *HostRanks
}

func (s *slow) WaitFor(time.Duration) bool {
	s.looks--
	if s.moves {
		atomic.AddUint32(&mappedWords(s.r.arrived)[ProgressWords], 1)
	}
	return s.looks < 0
}

func (s *slow) Failed() error { return nil }

// Patience begins anew whenever a rank reaches an exchange.
func TestPatienceWithRanksThatGetOn(t *testing.T) {
	for _, moves := range []bool{true, false} {
		r := newTestRanks(t, 2, 3*waitInterval)
		work := &slow{looks: 20, moves: moves, r: r}
		if err := r.await(func(int) waiting { return work }); errors.Is(err, ErrRanks) == moves {
			t.Errorf("the ranks get on: %v, got %v", moves, err)
		}
	}
}

// A guard puts canaries around the memory of every rank.
func TestGuardOfRanks(t *testing.T) {
	r := newTestRanks(t, 2, 0)
	g := NewGuard(r)
	b, err := g.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	if &r.Hosts()[0].Bytes(b)[0] == &r.Hosts()[1].Bytes(b)[0] {
		t.Fatal("the ranks share memory")
	}
	if err := g.Intact(); err != nil {
		t.Error(err)
	}
	h := r.Hosts()[1]
	whole := b
	whole.bytes++
	h.Bytes(whole)[8] = 0
	if err := g.Intact(); !errors.Is(err, ErrOverrun) {
		t.Errorf("an overrun on the second rank: %v", err)
	}
}

func TestTooManyRanks(t *testing.T) {
	for _, n := range []int{0, 1, MaxRanks + 1} {
		_, err := NewHostRanks(n, 0, func(int) HostOptions { return HostOptions{Workers: 1} })
		if !errors.Is(err, ErrBadShape) {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
