//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/protocol"
)

// turn asks for six tokens after a prompt, and returns them and how many of the prompt's tokens were cached.
func (p *peer) turn(id uint64, prompt []int32) (tokens []int32, cached int) {
	p.t.Helper()
	p.send(&protocol.Generate{ID: id, Tokens: prompt, MaxTokens: new(6), Seed: &id, IgnoreEOS: true})
	done := until(p, func(m any) bool {
		if m, ok := m.(*protocol.Token); ok {
			tokens = append(tokens, m.Token)
		}
		_, ok := m.(*protocol.Done)
		return ok
	})
	return tokens, done.(*protocol.Done).Usage.CachedTokens
}

// Ten conversations of 200 tokens do not fit a pool of 48 pages. With a host tier each turn finds the turns before
// it, and gives the tokens that it gives without the tier and without a cache.
func TestConversationsFromTheHostTier(t *testing.T) {
	t.Parallel()
	bounds := []string{"--max-batch", "2", "--max-seq-len", "256"}
	tiered := serve(t, append(bounds, "--host-cache", "64MiB")...)
	plain := serve(t, append(bounds, "--host-cache", "0", "--cache-scope", "off")...)
	tiered.eventually("the whole tier", func() bool {
		kv := tiered.status().KV
		return int64(kv.HostPages)*kv.PageBytes == 64<<20
	})
	one, other := tiered.peer(), plain.peer()
	conversations := make([][]int32, 10)
	for i := range conversations {
		for j := range 150 {
			conversations[i] = append(conversations[i], int32((j*j+7*i+j*i)%1000))
		}
	}
	for round := range 3 {
		for i := range conversations {
			id := uint64(100*round + i)
			got, cached := one.turn(id, conversations[i])
			want, _ := other.turn(id, conversations[i])
			if !slices.Equal(got, want) || len(got) != 6 {
				t.Errorf("turn %d of conversation %d: %v, without the tier %v", round, i, got, want)
			}
			if round > 0 && cached < 144 {
				t.Errorf("turn %d of conversation %d found %d tokens", round, i, cached)
			}
			conversations[i] = append(append(conversations[i], got...), int32(i), int32(round))
		}
	}
	kv := tiered.status().KV
	if kv.Pages != 48 || kv.Stored < 40 || kv.Loaded < 100 || kv.HostCached < 40 {
		t.Errorf("%+v", kv)
	}
	status := tiered.reel("status").start()
	status.wantExit(0)
	if text := status.stdout.String(); !strings.Contains(text, fmt.Sprintf("of %d pages cached", kv.HostPages)) {
		t.Error(text)
	}
	if kv := plain.status().KV; kv.HostPages != 0 || kv.Stored != 0 {
		t.Errorf("without a tier: %+v", kv)
	}
	for _, g := range []*generator{tiered, plain} {
		g.signal(syscall.SIGTERM)
		g.wantExit(0)
	}
}

// A size that no limit can hold ends the start, and the message says what to change.
func TestHostCacheThatCannotBe(t *testing.T) {
	p := prepare(t, "reel-generator", "--socket", tempDir(t)+"/g.sock", "--device", device, "--host-cache", "1EiB")
	p.start().wantExit(78)
	if text := p.stderr.String(); !strings.Contains(text, "--host-cache asks for 1.000 EiB") {
		t.Error(text)
	}
}
