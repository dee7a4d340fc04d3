package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// turns is a target that computes one prompt at a time, 1 ms for each token of it, while others wait; tokens after the
// first take 1 ms, and 3 ms while prompts are computed. Completions end with the context.
type turns struct {
	device  chan struct{} // who holds an element computes; nobody waits for a mutex in simulated time
	busy    sync.Mutex
	prompts int
	lengths []int       // of the streams' completions
	came    []time.Time // the prompts that arrive
	fail    func(prompt int) error
}

func (s *turns) Name() string { return "turns" }

func (s *turns) add(n int) {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.prompts += n; n > 0 {
		s.came = append(s.came, time.Now())
	}
}

func (s *turns) began(length int) {
	s.busy.Lock()
	defer s.busy.Unlock()
	s.lengths = append(s.lengths, length)
}

func (s *turns) step() time.Duration {
	s.busy.Lock()
	defer s.busy.Unlock()
	if s.prompts > 0 {
		return 3 * time.Millisecond
	}
	return time.Millisecond
}

func (s *turns) Complete(ctx context.Context, w Work, arrived func()) (Ended, error) {
	if s.fail != nil {
		if err := s.fail(len(w.Tokens)); err != nil {
			return Ended{}, err
		}
	}
	if len(w.Tokens) == streamPrompt {
		s.began(w.MaxTokens)
	} else {
		s.add(1)
		s.device <- struct{}{}
		pause(ctx, time.Duration(len(w.Tokens))*time.Millisecond)
		<-s.device
		s.add(-1)
	}
	for i := range w.MaxTokens {
		if i > 0 {
			pause(ctx, s.step())
		}
		if ctx.Err() != nil {
			return Ended{}, ctx.Err()
		}
		arrived()
	}
	return Ended{PromptTokens: len(w.Tokens), Tokens: w.MaxTokens}, nil
}

var someArrivals = ArrivalOptions{Streams: 4, Length: 400, Rate: 2, Prompt: 50, Output: 1, Duration: 20 * time.Second,
	Warmup: time.Second, Drain: time.Second, Bursts: []Burst{{8, 10}}, Runs: 3}

// arrivalsOf measures s by simulated time.
func arrivalsOf(t *testing.T, s *turns, o ArrivalOptions) (report *Arrivals, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.device = make(chan struct{}, 1)
		report, err = MeasureArrivals(t.Context(), []Target{s}, limits(512), o)
	})
	return report, err
}

func TestArrivals(t *testing.T) {
	s := &turns{}
	got, err := arrivalsOf(t, s, someArrivals)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(s.lengths[:4]) // they begin in any order
	if begun := s.lengths[:5]; !slices.Equal(begun, []int{100, 200, 300, 400, 400}) {
		t.Errorf("the streams began with completions of %d tokens", begun)
	}
	alone, beside, burst := got.Streams[0], got.Streams[1], got.Bursts[0]
	if !near(alone.ITL.P50, 1, 0.01) || !near(alone.ITL.Max, 1, 0.01) || alone.TTFT.Samples != 0 {
		t.Errorf("alone: %+v", alone)
	}
	// 16 tokens of a prompt's 50 ms take three times as long, of two seconds' 2,000
	if !near(beside.ITL.P50, 1, 0.01) || !near(beside.ITL.P99, 3, 0.01) || !near(beside.TTFT.P50, 50, 0.01) ||
		beside.TTFT.Max < 51 || beside.TTFT.Samples < 25 || beside.TTFT.Samples > 60 || beside.Failed != 0 {
		t.Errorf("with prompts: %+v", beside)
	}
	if len(burst.P50) != 3 || !near(burst.First[0], 10, 0.01) || !near(burst.P50[0], 40, 0.3) ||
		!near(burst.Last[2], 80, 0.01) {
		t.Errorf("burst: %+v", burst)
	}
	if tables := got.Tables(); len(tables) != 2 || len(tables[0].Rows) != 2 || len(tables[1].Rows) != 1 {
		t.Errorf("%+v", tables)
	}
	if m := got.Metrics(); len(m) != 7 || m[6].Name != "arrivals/turns/burst=8x10/ttft-last" {
		t.Errorf("%+v", m)
	}
}

// The prompts of a seed arrive at the same times however long the streams' completions are.
func TestArrivalsOfASeed(t *testing.T) {
	var came [3][]time.Duration
	for i, o := range []struct {
		length int
		seed   uint64
	}{{400, 1}, {300, 1}, {300, 2}} {
		s, of := &turns{}, someArrivals
		of.Length, of.Seed, of.Bursts = o.length, o.seed, nil
		if _, err := arrivalsOf(t, s, of); err != nil {
			t.Fatal(err)
		}
		for _, at := range s.came {
			came[i] = append(came[i], at.Sub(s.came[0]))
		}
	}
	if len(came[0]) < 10 || !slices.Equal(came[0], came[1]) || slices.Equal(came[1], came[2]) {
		t.Errorf("%v\n%v\n%v", came[0], came[1], came[2])
	}
}

var errDown = errors.New("it is down")

func TestArrivalsThatFail(t *testing.T) {
	for prompt, want := range map[int]string{streamPrompt: "a stream failed", 10: "a request of a burst failed"} {
		s := &turns{fail: func(n int) error {
			if n == prompt {
				return errDown
			}
			return nil
		}}
		if _, err := arrivalsOf(t, s, someArrivals); !errors.Is(err, errDown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", prompt, err)
		}
	}
	s := &turns{fail: func(n int) error {
		if n == 50 {
			return errDown
		}
		return nil
	}}
	got, err := arrivalsOf(t, s, someArrivals)
	if err != nil || got.Streams[1].Failed < 25 || len(got.Warnings) != 1 {
		t.Errorf("%v, %+v", err, got)
	}
}

func TestArrivalsOutOfBounds(t *testing.T) {
	for want, change := range map[string]func(*ArrivalOptions){
		"streams":          func(o *ArrivalOptions) { o.Streams = 0 },
		"a rate":           func(o *ArrivalOptions) { o.Rate = 0 },
		"need a token":     func(o *ArrivalOptions) { o.Output = 0 },
		"of up to 513":     func(o *ArrivalOptions) { o.Length = 413 },
		"of up to 601":     func(o *ArrivalOptions) { o.Prompt = 600 },
		"the context hold": func(o *ArrivalOptions) { o.Bursts[0].Prompt = 600 },
	} {
		o := someArrivals
		o.Bursts = []Burst{{1, 1}}
		change(&o)
		if _, err := arrivalsOf(t, &turns{}, o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, text := range []string{"", "64", "64x", "64x16x", "0x16", "64x0", "-1x2", "1 x2"} {
		if _, err := ParseBurst(text); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if b, err := ParseBurst("64x16"); err != nil || b != (Burst{64, 16}) {
		t.Errorf("%v, %v", b, err)
	}
}
