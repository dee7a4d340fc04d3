package engine

import (
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// late is a device that holds back ops of one kind until so many steps later, as if nothing ordered them before the
// rows that read what they write.
type late struct {
	device.Device
	kernel string
	steps  int
	held   []heldOp
}

type heldOp struct {
	stream device.Stream
	op     device.Op
	steps  int // to go
}

func (l *late) NewStream() (device.Stream, error) {
	s, err := l.Device.NewStream()
	return &lateStream{Stream: s, l: l}, err
}

type lateStream struct {
	device.Stream
	l        *late
	launched bool // a step since the last event
}

func (s *lateStream) Launch(op device.Op) error {
	if op.Kernel() == s.l.kernel {
		s.l.held = append(s.l.held, heldOp{s.Stream, op, s.l.steps})
		return nil
	}
	_, step := op.(kernels.Stage)
	s.launched = s.launched || step
	return s.Stream.Launch(op)
}

func (s *lateStream) Replay(x device.Exec) error {
	s.launched = true
	return s.Stream.Replay(x)
}

// Record launches what was held back for long enough, at the end of a step.
func (s *lateStream) Record(e device.Event) error {
	if s.launched {
		s.launched = false
		s.l.held = slices.DeleteFunc(s.l.held, func(h heldOp) bool {
			if h.steps--; h.steps > 0 {
				return false
			}
			return h.stream.Launch(h.op) == nil
		})
	}
	return s.Stream.Record(e)
}

// A prompt gives the tokens that it gives alone, from pages on the device and from the host tier. It does not if
// nothing orders the restore of its slot before its first row, or the copies of its pages.
func TestRestoresAndLoadsComeBeforeTheirReaders(t *testing.T) {
	reference := newAlone(t)
	for name, c := range map[string]struct {
		kernel string // that is held back
		away   bool   // the pages are in host memory
		same   bool
	}{
		"device": {"", false, true}, "host tier": {"", true, true},
		"restored too late": {"restore", false, false}, "loaded too late": {"loadpage", true, false},
	} {
		if !c.same && testing.Short() {
			continue // the race detector would find what is planted
		}
		o := nano()
		o.Pages, o.HostCache, o.MaxGraphs, o.NoRoller = 16, 64*64*4, 0, true
		l := &late{kernel: c.kernel, steps: 4} // past the first rows, on whatever stream
		b := built(t, device.HostOptions{}, o, func(d device.Device) device.Device {
			l.Device = d
			return l
		})
		b.run()
		q := Request{Tokens: make([]int32, 45), MaxTokens: 10, Sampling: sampled(1)}
		for i := range q.Tokens {
			q.Tokens[i] = int32(i * i % 13)
		}
		b.eventually("the host tier is pinned", func() bool { return b.Stats().KV.HostPages == 64 })
		b.complete(q)
		if c.away {
			b.complete(Request{Tokens: append([]int32{15}, q.Tokens...), MaxTokens: 10, IgnoreEOS: true})
			// Others' keys and values in the pages that are free now, so that a page that is read too early shows.
			b.complete(Request{Tokens: slices.Repeat([]int32{14}, 45), MaxTokens: 10, IgnoreEOS: true, Cache: CacheOff})
		}
		s := b.complete(q)
		kv := b.Stats().KV
		if s.finish.Usage.CachedTokens != 44 || kv.Loaded > 0 != c.away {
			t.Errorf("%s: %d tokens found, %d pages loaded", name, s.finish.Usage.CachedTokens, kv.Loaded)
		}
		if same := slices.EqualFunc(s.tokens, reference.answer(q), sameToken); same != c.same {
			t.Errorf("%s: the tokens are those of the prompt alone: %v; %v", name, same, s.finish)
		}
		b.Stop()
		if err := b.wait(); c.same && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := reference.finish(); err != nil {
		t.Error(err)
	}
}

// A user does not find what another has asked, unless all users share one scope.
func TestUsersDoNotFindEachOthersPrompts(t *testing.T) {
	for scope, want := range map[CacheScope]int{ScopeUser: 0, ScopeAll: 16} {
		o := nano()
		o.CacheScope = scope
		b := built(t, device.HostOptions{}, o, nil)
		b.run()
		q := Request{Tokens: make([]int32, 17), MaxTokens: 2, User: 1}
		b.complete(q)
		q.User = 2
		if n := b.complete(q).finish.Usage.CachedTokens; n != want {
			t.Errorf("%v: user 2 found %d tokens of user 1, wants %d", scope, n, want)
		}
		q.User = 1
		if n := b.complete(q).finish.Usage.CachedTokens; n != 16 {
			t.Errorf("%v: user 1 found %d tokens of its own", scope, n)
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}
