package scheduler

import (
	"testing"

	"reel.internal/reel/kernels"
)

// masked is a sequence with masks.
func masked(promptTokens, maxTokens int) *Sequence {
	return &Sequence{Prompt: prompt(promptTokens), MaxTokens: maxTokens, Sampling: kernels.Sampling{Masked: true}}
}

// The part of a prompt that samples waits for the mask, the chunks before it do not. Each further row waits for its
// own mask, and the other sequence keeps two steps in flight meanwhile.
func TestMaskedRowsWaitForTheirMasks(t *testing.T) {
	o := small()
	o.InFlight = 2
	s := mustNew(t, o)
	q, other := masked(40, 3), &Sequence{Prompt: prompt(2), MaxTokens: 30}
	for _, sequence := range []*Sequence{other, q} {
		if err := s.Add(sequence); err != nil {
			t.Fatal(err)
		}
	}
	next := func(rows int, sampled ...*Sequence) {
		t.Helper()
		b := s.Next()
		if b == nil || len(b.Step.Rows) != rows || len(b.Sampled) != len(sampled) {
			t.Fatalf("%+v, wants %d rows and %d sampled", b, rows, len(sampled))
		}
		for i, want := range sampled {
			wantMasked := 0
			if want.Sampling.Masked {
				wantMasked = 1
			}
			if b.Sampled[i] != want || len(b.Masked) != wantMasked {
				t.Fatalf("step %d samples %v, %d of them masked", b.Step.Number, b.Sampled, len(b.Masked))
			}
		}
		if b.Step.Number > 0 {
			s.Complete(b.Step.Number - 1)
		}
	}
	next(16, other) // and 14 tokens of the masked prompt
	next(1, other)
	next(16) // 30 of 40 tokens; the rest fits a step
	for range 4 {
		next(1, other)
	}
	q.Allow(nil)
	next(10, q)
	for range 3 {
		next(1, other)
	}
	q.Allow(nil)
	b := s.Next()
	if len(b.Step.Rows) != 2 || len(b.Masked) != 1 || b.Masked[0] != q {
		t.Fatalf("%+v: wants a row of each sequence", b)
	}
	next(1, other)
}

// A masked sequence has one sampled row in flight, and nobody else's rows need its mask.
func TestOneMaskedRowInFlight(t *testing.T) {
	o := small()
	o.InFlight = 2
	s := mustNew(t, o)
	q := masked(3, 8)
	if err := s.Add(q); err != nil {
		t.Fatal(err)
	}
	for token := range q.MaxTokens {
		if b := s.Next(); b != nil {
			t.Fatalf("token %d: a step of %d rows before its mask", token, len(b.Step.Rows))
		}
		q.Allow(nil)
		b := s.Next()
		if b == nil || len(b.Masked) != 1 {
			t.Fatalf("token %d: %+v", token, b)
		}
		if s.Next() != nil {
			t.Fatalf("token %d: a second step in flight", token)
		}
		s.Complete(b.Step.Number)
	}
	q.Allow(nil)
	if s.Next() != nil {
		t.Error("a row past MaxTokens")
	}
}

// A prompt of more tokens than a step waits for its mask too, once found pages leave fewer.
func TestFoundPagesDoNotReplaceTheMask(t *testing.T) {
	s := mustNew(t, small())
	first, q := &Sequence{Prompt: prompt(17), MaxTokens: 1, Scope: "all"}, masked(20, 1)
	q.Scope = "all"
	for _, sequence := range []*Sequence{first, q} {
		if err := s.Add(sequence); err != nil {
			t.Fatal(err)
		}
	}
	for b := s.Next(); b != nil; b = s.Next() {
		if len(b.Masked) > 0 {
			t.Fatal("a row without its mask")
		}
		finish(s, b, map[*Sequence]int{})
	}
	q.Allow(nil)
	if b := s.Next(); b == nil || len(b.Masked) != 1 || q.Cached() == 0 {
		t.Errorf("%+v, %d tokens found", b, q.Cached())
	}
}

// Masked sequences alone have one step in flight, so that they stay in one batch. Beside another sequence they do not
// wait for each other.
func TestMaskedSequencesStayInOneBatch(t *testing.T) {
	for _, beside := range []bool{false, true} {
		o := small()
		o.InFlight = 2
		s := mustNew(t, o)
		a, b := masked(3, 8), masked(3, 8)
		all := []*Sequence{a, b}
		if beside {
			all = append(all, &Sequence{Prompt: prompt(3), MaxTokens: 20})
		}
		for _, q := range all {
			if err := s.Add(q); err != nil {
				t.Fatal(err)
			}
			q.Allow(nil)
		}
		prefill := s.Next()
		s.Complete(prefill.Step.Number)
		a.Allow(nil)
		first := s.Next()
		if first == nil || len(first.Masked) != 1 {
			t.Fatalf("beside another: %v, %+v", beside, first)
		}
		b.Allow(nil)
		second := s.Next()
		if got := second != nil && len(second.Masked) == 1; got != beside {
			t.Errorf("beside another: %v, a second step in flight: %v", beside, got)
		}
		if beside {
			continue
		}
		s.Complete(first.Step.Number)
		a.Allow(nil)
		if both := s.Next(); both == nil || len(both.Masked) != 2 {
			t.Errorf("%+v, wants both", both)
		}
	}
}
