package kv

import "testing"

// BenchmarkFind finds the pages of a prompt of 100,000 tokens.
func BenchmarkFind(b *testing.B) {
	const tokens, pageTokens = 100_000, 16
	p := New(tokens/pageTokens, pageTokens)
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32(i * 7919 % 128_000)
	}
	pages, _ := p.Take(tokens / pageTokens)
	parent := p.Root("user 1")
	for i, page := range pages {
		parent = p.Publish(parent, prompt[i*pageTokens:(i+1)*pageTokens], page, 1, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		parent := p.Root("user 1")
		for i := range pages {
			if parent = p.Find(parent, prompt[i*pageTokens:(i+1)*pageTokens]); parent == nil {
				b.Fatal("a page is missing")
			}
		}
	}
}
