package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// fixed is a format whose masks are all the same and made within Next.
type fixed struct{ mask Mask }

func (f *fixed) Next(_ []int32, _ int, done func(Mask)) { done(f.mask) }

func (f *fixed) Close() {}

// Each step of a request with a format allocates two objects in the engine: the function that takes the mask, and
// the inbox. With drafts it takes fewer steps.
func TestFormatAllocatesLittle(t *testing.T) {
	if each := formatObjects(t, &fixed{allowing(16, 5, 6, 7)}); each > 2.1 {
		t.Errorf("%.2f objects a token", each)
	}
	same := []int32{5}
	if each := formatObjects(t, &fixed{guessing([]int32{5, 5, 5}, same, same, same, same)}); each > 0.6 {
		t.Errorf("%.2f objects a token with three drafts", each)
	}
}

// formatObjects returns how many objects a token of a request with a format allocates, with as many drafts as may be.
func formatObjects(t *testing.T, f Format) float64 {
	t.Helper()
	c := nanoConfig()
	c.Context = 600
	o := nano()
	o.Context, o.Pages, o.NoRoller = c.Context, c.Context/o.PageTokens, true
	o.MaxGraphs, o.GraphMemory, o.Draft, o.DraftTokens = 200, 200_000, DraftLookup, 3
	o.planDrafts = func(ready []*scheduler.Sequence) { ready[0].Drafts = ready[0].MayDraft }
	b := builtModel(t, c, o)
	b.run()
	w := &watcher{from: 50, to: 550, ended: make(chan struct{})}
	r := Request{Tokens: []int32{1, 2}, MaxTokens: 580, IgnoreEOS: true, Sink: w, Format: f, DraftTokens: 3}
	if _, err := b.Submit(&r); err != nil {
		t.Fatal(err)
	}
	<-w.ended
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	if w.objects < 0 {
		t.Error("the request ended before its objects were counted")
	}
	return float64(w.objects) / 500
}

// BenchmarkMaskToEnqueue measures the time from the call of done, while the engine sleeps, to the first call of the
// device for the step that the mask allows.
func BenchmarkMaskToEnqueue(b *testing.B) {
	c := nanoConfig()
	c.Context = 1 << 20
	o := nano()
	o.Context, o.PageTokens, o.NoRoller = c.Context, 4096, true
	o.Pages = c.Context / o.PageTokens
	c.Windows = []int{8} // a step reads few positions
	e := builtModel(b, c, o)
	e.run()
	var called atomic.Int64 // time of done; 0 after the first call of the device
	var total, n int64
	e.h.Trace(func(call device.Call) {
		if at := called.Swap(0); at != 0 {
			total, n = total+time.Now().UnixNano()-at, n+1
		}
	})
	f := newManual()
	s, _ := e.submit(Request{Tokens: []int32{1}, MaxTokens: b.N, IgnoreEOS: true, Format: f})
	for range b.N {
		done := f.asked(b)
		e.idle()
		called.Store(time.Now().UnixNano())
		done(allowing(16, 5, 6, 7))
	}
	s.must(b)
	if err := e.finish(); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(total)/float64(n)/1e3, "µs/wake")
}

// BenchmarkFormatsBesideOthers measures the time between two tokens with and without formats, on a device whose steps
// take some milliseconds. A mask takes 50 µs and the time to wake a goroutine.
func BenchmarkFormatsBesideOthers(b *testing.B) {
	for _, c := range []struct{ free, formatted int }{{4, 0}, {4, 1}, {4, 8}, {0, 1}, {0, 8}} {
		b.Run(fmt.Sprintf("%d_free_%d_formatted", c.free, c.formatted), func(b *testing.B) {
			config := nanoConfig()
			config.Context, config.Windows = 1<<16, []int{8}
			o := nano()
			o.Context, o.PageTokens, o.MaxBatch, o.NoRoller = config.Context, 64, 12, true
			o.Pages = 13 * config.Context / o.PageTokens
			delay := func() time.Duration { return 2 * time.Millisecond }
			e, err := tryBuildModel(b, config, device.HostOptions{Delay: delay}, o, nil)
			if err != nil {
				b.Fatal(err)
			}
			e.run()
			itl := [2]time.Duration{}
			n := [2]int{c.free, c.formatted}
			var ended [2][]*pace
			for kind := range n {
				for i := range n[kind] {
					p := &pace{ended: make(chan struct{})}
					r := Request{Tokens: []int32{1}, MaxTokens: b.N, IgnoreEOS: true, Sink: p, User: User{UID: uint32(i)}}
					if kind == 1 {
						r.MaxTokens = b.N/4 + 1 // it ends before the others
						r.Format = &busy{allowing(16, 5, 6, 7), 50 * time.Microsecond}
					}
					if _, err := e.Submit(&r); err != nil {
						b.Fatal(err)
					}
					ended[kind] = append(ended[kind], p)
				}
			}
			for kind := range n {
				for _, p := range ended[kind] {
					<-p.ended
					itl[kind] += p.last.Sub(p.first) / time.Duration(p.tokens*n[kind])
				}
			}
			b.ReportMetric(float64(itl[0])/1e6, "ms/free")
			b.ReportMetric(float64(itl[1])/1e6, "ms/formatted")
			if err := e.finish(); err != nil {
				b.Error(err)
			}
		})
	}
}

// pace is a sink that notes the times of a token after the start and of the last one, and the number of tokens between.
type pace struct {
	first, last time.Time
	tokens      int
	ended       chan struct{}
}

func (p *pace) Token(t Token) {
	const from = 10
	if p.last = time.Now(); t.Index == from {
		p.first = p.last
	}
	p.tokens = t.Index - from
}

func (p *pace) Finish(Finish) { close(p.ended) }

// busy is a format whose masks are all the same and keep a processor busy for a while.
type busy struct {
	mask Mask
	time time.Duration
}

func (f *busy) Next(_ []int32, _ int, done func(Mask)) {
	go func() {
		for begun := time.Now(); time.Since(begun) < f.time; {
		}
		done(f.mask)
	}()
}

func (f *busy) Close() {}
