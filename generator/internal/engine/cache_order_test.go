package engine

import (
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// delayed is a device that runs the ops of one kernel some steps too late: after the rows that read what they write.
type delayed struct {
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

func (d *delayed) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &delayedStream{Stream: s, d: d}, err
}

type delayedStream struct {
	device.Stream
	d        *delayed
	launched bool // a step since the last event
}

func (s *delayedStream) Launch(op device.Op) error {
	if op.Kernel() == s.d.kernel {
		s.d.held = append(s.d.held, heldOp{s.Stream, op, s.d.steps})
		return nil
	}
	_, step := op.(kernels.Stage)
	s.launched = s.launched || step
	return s.Stream.Launch(op)
}

func (s *delayedStream) Replay(x device.Exec) error {
	s.launched = true
	return s.Stream.Replay(x)
}

// Record launches what was held back for long enough, at the end of a step.
func (s *delayedStream) Record(e device.Event) error {
	if s.launched {
		s.launched = false
		s.d.held = slices.DeleteFunc(s.d.held, func(h heldOp) bool {
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
		slow := &delayed{kernel: c.kernel, steps: 4} // past the first rows, on whatever stream
		b := built(t, device.HostOptions{}, o, func(d device.Device) device.Device {
			slow.Device = d
			return slow
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

// nameOf returns the user of a uid's requests with a name.
func nameOf(uid uint32, name string) User { return User{UID: uid, Name: name} }

// A user does not find what another has asked, nor a name what another name of the same uid has, unless all users share
// one scope.
func TestUsersDoNotFindEachOthersPrompts(t *testing.T) {
	users := []User{{UID: 1}, {UID: 2}, nameOf(1, "key"), nameOf(1, "key 2"), nameOf(2, "key"), nameOf(1, "2"), nameOf(12, "")}
	for scope, want := range map[CacheScope]int{ScopeUser: 0, ScopeAll: 16} {
		o := nano()
		o.CacheScope = scope
		b := built(t, device.HostOptions{}, o, nil)
		b.run()
		q := Request{Tokens: make([]int32, 17), MaxTokens: 2}
		for i, user := range users {
			q.User = user
			if n := b.complete(q).finish.Usage.CachedTokens; i > 0 && n != want {
				t.Errorf("%v: %v found %d tokens of others, wants %d", scope, user, n, want)
			}
		}
		for _, user := range users {
			q.User = user
			if n := b.complete(q).finish.Usage.CachedTokens; n != 16 {
				t.Errorf("%v: %v found %d tokens of its own", scope, user, n)
			}
		}
		if err := b.finish(); err != nil {
			t.Error(err)
		}
	}
}

// The scope of requests without a name is that of generators that knew no names: files in their directories stay valid.
func TestScopesOfUsers(t *testing.T) {
	for user, want := range map[User]string{{UID: 1000}: "user 1000", nameOf(1000, "key"): "user 1000 key"} {
		if got := userScope(user); got != want {
			t.Errorf("%v has %q, wants %q", user, got, want)
		}
	}
}
