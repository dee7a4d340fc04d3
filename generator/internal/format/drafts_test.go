//go:build formats

package format

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// at returns mask i of a mask with drafts.
func at(m engine.Mask, i int) engine.Mask {
	n := len(m.Words) / (1 + len(m.Drafts))
	return engine.Mask{Words: m.Words[i*n : (i+1)*n]}
}

// With drafts, whichever of them are drawn, each token has the mask that it has without, and the text ends at the same
// place.
func TestDraftsChangeNoMask(t *testing.T) {
	s := newService(t, vocabulary(3000))
	for name, f := range map[string]protocol.Format{
		"object": {JSON: true}, "person": {JSONSchema: person}, "regex": {Regex: "(abc|abd|x12y12z|(true|12)+){3,20}"},
		"choice": {Choice: []string{"yes, true", "yes, 12", "no", "yes, true12"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, drafted, stood := rand.New(rand.NewPCG(7, 8)), 0, 0
			for range 40 {
				with, without := s.compiled(t, f), s.compiled(t, f)
				d, n := draftsChangeNoMask(t, r, with, without)
				drafted, stood = drafted+d, stood+n
				with.Close()
				without.Close()
			}
			t.Logf("%d of %d drafts were drawn", stood, drafted)
			if stood == 0 {
				t.Error("no draft was drawn")
			}
		})
	}
}

// draftsChangeNoMask draws a text of two sequences of one format, the first with drafts. It returns how many it had,
// and how many of them were drawn.
func draftsChangeNoMask(t *testing.T, r *rand.Rand, with, without *Sequence) (drafted, stood int) {
	t.Helper()
	m, plain := next(with, -1), next(without, -1)
	for range 60 {
		var drawn []int32
		for i := range 1 + len(m.Drafts) {
			if plain.Ended || !slices.Equal(at(m, i).Words, plain.Words) {
				t.Fatalf("mask %d of drafts %v is another after %v, which ended: %v", i, m.Drafts, drawn, plain.Ended)
			}
			token := draw(r, plain)
			if i < len(m.Drafts) && r.IntN(4) > 0 {
				token = m.Drafts[i]
			}
			drawn, plain = append(drawn, token), next(without, token)
			if i == len(m.Drafts) || token != m.Drafts[i] {
				break
			}
		}
		drafted, stood = drafted+len(m.Drafts), stood+len(drawn)-1
		if m = nextWith(with, r.IntN(1+engine.MaxDrafts), drawn...); m.Ended || m.Err != nil {
			if m.Ended != plain.Ended || m.Err != nil {
				t.Fatalf("after %v: %+v, without drafts %+v", drawn, m, plain)
			}
			break
		}
	}
	return drafted, stood
}

// BenchmarkDrafts measures how many tokens of a text a step draws, and the time from the tokens of a step to the masks
// of the next. Texts are of the format and otherwise random; where it forces the text, they take the longest tokens, as
// a model does. The vocabulary has 128,000 tokens.
func BenchmarkDrafts(b *testing.B) {
	s := newService(b, vocabulary(128000))
	for _, drafts := range []int{0, engine.MaxDrafts} {
		for name, format := range map[string]protocol.Format{"object": {JSON: true}, "schema": {JSONSchema: person},
			"forced": {Regex: "a{100000}"}} {
			b.Run(fmt.Sprintf("%s-%d", name, drafts), func(b *testing.B) { benchmarkDrafts(b, s, format, drafts) })
		}
	}
}

func benchmarkDrafts(b *testing.B, s *Service, f protocol.Format, drafts int) {
	r := rand.New(rand.NewPCG(3, 4))
	q := s.compiled(b, f)
	m := next(q, -1)
	var times []time.Duration
	drawn, steps := 0, 0
	for b.Loop() {
		if m.Ended || steps%300 == 299 {
			q.Close()
			q = s.compiled(b, f)
			m = next(q, -1)
		}
		tokens := append(slices.Clone(m.Drafts), draw(r, at(m, len(m.Drafts))))
		begun := time.Now()
		m = nextWith(q, drafts, tokens...)
		times = append(times, time.Since(begun))
		drawn, steps = drawn+len(tokens), steps+1
	}
	q.Close()
	slices.Sort(times)
	b.ReportMetric(float64(drawn)/float64(steps), "tokens/step")
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "P50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "P99-us")
}
