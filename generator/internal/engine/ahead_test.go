package engine

import (
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// A sequence alone on a slow device leaves no step behind that only it had rows in, when it ends with a token that the
// host did not foresee. Two sequences have a step ahead.
func TestSlowStepsAreNotFormedAhead(t *testing.T) {
	const delay = slowStep + 2*time.Millisecond
	end, last := ending(t)
	for _, c := range []struct {
		name     string
		requests int
		wants    int // decode steps
	}{
		{"one", 1, last},
		{"two", 2, last + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := nanoConfig()
			config.EOS = []int32{end}
			b, err := tryBuildModel(t, config, device.HostOptions{Delay: func() time.Duration { return delay }}, nano(), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.pace = delay
			var sinks []*sink
			for range c.requests {
				s, _ := b.submit(varied(false))
				sinks = append(sinks, s)
			}
			b.run()
			for _, s := range sinks {
				if n := len(s.must(t).tokens); n != last {
					t.Errorf("%d tokens came before the end, wants %d", n, last)
				}
			}
			b.baseline()
			if n := int(b.Stats().Steps.Decode); n != c.wants {
				t.Errorf("%d decode steps, wants %d", n, c.wants)
			}
			if err := b.finish(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// varied returns a request whose tokens differ.
func varied(endless bool) Request {
	return Request{Tokens: []int32{1, 2}, MaxTokens: 20, IgnoreEOS: endless,
		Sampling: Sampling{Temperature: 3, TopP: 1, RepeatPenalty: 1, Seed: 1}}
}

// ending returns a token that comes first as the index-th of a varied request, in its middle.
func ending(t *testing.T) (token int32, index int) {
	t.Helper()
	b := built(t, device.HostOptions{}, nano(), nil)
	b.run()
	seen := map[int32]bool{}
	for i, next := range b.complete(varied(true)).tokens {
		if i >= 4 && i < 15 && !seen[next.ID] {
			token, index = next.ID, i
		}
		seen[next.ID] = true
	}
	if err := b.finish(); err != nil || index == 0 {
		t.Fatalf("%v, or no token is new", err)
	}
	return token, index
}
