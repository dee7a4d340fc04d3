package scheduler

import (
	"fmt"
	"testing"
)

// BenchmarkNext measures the scheduler's time for a decode step, with and without a long queue. Each sequence is of a
// connection of its own.
func BenchmarkNext(b *testing.B) {
	for _, n := range []int{1, 8, 64, 256} {
		for _, waiting := range []int{0, 750} {
			b.Run(fmt.Sprintf("%d run, %d wait", n, waiting), func(b *testing.B) {
				s, err := New(Options{MaxBatch: n, Reserve: 4, ReservePages: 1, MaxQueue: 1100, Chunk: 64,
					Context: 1 << 40, PageTokens: 1 << 36, Pages: 1 << 10, InFlight: 2})
				if err != nil {
					b.Fatal(err)
				}
				for i := range n + waiting {
					_ = s.Add(&Sequence{Prompt: make([]int32, 1), MaxTokens: 1 << 35, Connection: uint64(i)})
				}
				for range 200 {
					s.Complete(s.Next().Step.Number)
				}
				b.ReportAllocs()
				for b.Loop() {
					s.Complete(s.Next().Step.Number)
				}
			})
		}
	}
}

// BenchmarkBlocked measures how long each step looks at a request that waits for pages, and whose prompt of 100,000
// tokens was found.
func BenchmarkBlocked(b *testing.B) {
	const tokens, page = 100_000, 16
	s, err := New(Options{MaxBatch: 8, MaxQueue: 10, Chunk: tokens, Context: 1 << 20, PageTokens: page, Pages: 1 << 16,
		InFlight: 2})
	if err != nil {
		b.Fatal(err)
	}
	prompt := numbered(0, tokens)
	serve(s, &Sequence{Prompt: prompt, MaxTokens: 1, Scope: "a"})
	s.pages.Take(1 << 15)
	waits := &Sequence{Prompt: prompt, MaxTokens: 1 << 19, Scope: "a"}
	_ = s.Add(waits)
	b.ReportAllocs()
	for b.Loop() {
		if s.nextJoin() != nil {
			b.Fatal("the request joins")
		}
	}
	if len(waits.found) != tokens/page-1 {
		b.Fatalf("%d pages were found", len(waits.found))
	}
}

// BenchmarkJoin measures how long a request takes to join whose prompt of 100,016 tokens was found but for 16, from its
// arrival to its first step and the state of its slot.
func BenchmarkJoin(b *testing.B) {
	const tokens, page = 100_016, 16
	s, err := New(Options{MaxBatch: 8, MaxQueue: 10, Chunk: tokens, Context: 1 << 17, PageTokens: page, Pages: 1 << 16,
		RestoreWords: 1 << 20, InFlight: 2})
	if err != nil {
		b.Fatal(err)
	}
	prompt := numbered(0, tokens)
	serve(s, &Sequence{Prompt: prompt, MaxTokens: 1, Scope: "a"})
	b.ReportAllocs()
	for b.Loop() {
		q := &Sequence{Prompt: prompt, MaxTokens: 1, Scope: "a"}
		_ = s.Add(q)
		batch := s.Next()
		if len(batch.Restored) != 1 || len(batch.Restored[0].State().History) != tokens-page {
			b.Fatal("the prompt is computed")
		}
		b.StopTimer()
		finish(s, batch, map[*Sequence]int{})
		for q.state != gone {
			finish(s, s.Next(), map[*Sequence]int{})
		}
		b.StartTimer()
	}
}
