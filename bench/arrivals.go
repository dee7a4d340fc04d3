package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"reel.internal/reel/client"
)

// ArrivalOptions describe what [MeasureArrivals] measures: completions that run while prompts arrive, and bursts of
// requests.
type ArrivalOptions struct {
	Streams  int           // completions that run, each followed by another
	Length   int           // tokens of each, of the first ones up to that; 0: 1,000, or what the context holds
	Rate     float64       // prompts that arrive a second, at random times
	Prompt   int           // their tokens
	Output   int           // tokens of the completions of what arrives
	Duration time.Duration // of the streams alone, and with prompts that arrive
	Warmup   time.Duration // before each
	Drain    time.Duration // for prompts that have arrived
	Bursts   []Burst
	Runs     int // of each burst, after one that is not measured
	Seed     uint64
	Progress Progress
}

// Burst is a number of requests that are sent at once, each with a prompt of so many tokens.
type Burst struct{ Requests, Prompt int }

// ParseBurst parses a burst such as 64x16.
func ParseBurst(text string) (b Burst, err error) {
	n, _ := fmt.Sscanf(text, "%dx%d", &b.Requests, &b.Prompt)
	if n != 2 || b.String() != text || min(b.Requests, b.Prompt) < 1 {
		return b, fmt.Errorf("%w: %q is no burst such as 64x16: requests, and tokens of each prompt", ErrOptions, text)
	}
	return b, nil
}

// String returns the form that ParseBurst reads.
func (b Burst) String() string { return fmt.Sprintf("%dx%d", b.Requests, b.Prompt) }

// Arrivals is the result of [MeasureArrivals].
type Arrivals struct {
	Head
	DurationS float64      `json:"duration_s"`
	Streams   []StreamsRow `json:"streams"`
	Bursts    []BurstRow   `json:"bursts"`
	Memory    Memory       `json:"memory"`
}

// StreamsRow has what streams and prompts wait for, of one target: of streams alone, or with prompts that arrive.
type StreamsRow struct {
	Target  string  `json:"target"`
	Streams int     `json:"streams"`
	Rate    float64 `json:"rate"` // 0: the streams are alone
	Prompt  int     `json:"prompt_tokens"`
	Failed  int     `json:"failed"`
	ITL     Summary `json:"itl_ms"`  // of the streams
	TTFT    Summary `json:"ttft_ms"` // of the prompts that arrive
}

// BurstRow has the times to the first tokens of the requests of a burst, of one target; a value for each run.
type BurstRow struct {
	Target   string    `json:"target"`
	Requests int       `json:"requests"`
	Prompt   int       `json:"prompt_tokens"`
	First    []float64 `json:"ttft_first_ms"`
	P50      []float64 `json:"ttft_p50_ms"`
	Last     []float64 `json:"ttft_last_ms"`
}

// MeasureArrivals measures each target, one after the other. limits are those of the first target. Errors are
// ErrOptions, ctx's, and those of bursts and streams; failed requests of prompts that arrive are counted.
func MeasureArrivals(
	ctx context.Context, targets []Target, limits client.Limits, o ArrivalOptions,
) (*Arrivals, error) {
	if err := o.check(limits); err != nil {
		return nil, err
	}
	report := &Arrivals{Head: Head{Kind: "arrivals"}, DurationS: o.Duration.Seconds()}
	done, all := 0, len(targets)*(2+len(o.Bursts))
	step := func() {
		if done++; o.Progress != nil {
			o.Progress(done, all)
		}
	}
	for _, t := range targets {
		a := arriving{ArrivalOptions: o, target: t, limits: limits, random: rand.New(rand.NewPCG(o.Seed, 3))}
		for _, rate := range []float64{0, o.Rate} {
			row, err := a.streams(ctx, rate)
			if err != nil {
				return nil, err
			}
			report.Streams = append(report.Streams, row)
			step()
		}
		for _, b := range o.Bursts {
			row, err := a.bursts(ctx, b)
			if err != nil {
				return nil, err
			}
			report.Bursts = append(report.Bursts, row)
			step()
		}
	}
	report.notePeers(targets)
	for _, r := range report.Streams {
		if r.Failed > 0 {
			report.warn(fmt.Sprintf("%s: %d of the prompts that arrived failed", r.Target, r.Failed))
		}
	}
	return report, nil
}

const (
	streamPrompt = 100  // tokens of a stream's prompt
	streamLength = 1000 // of its completion, by default
)

func (o *ArrivalOptions) check(limits client.Limits) error {
	if o.Length == 0 {
		o.Length = max(1, min(streamLength, limits.Context-streamPrompt))
	}
	longest := max(o.Prompt+o.Output, streamPrompt+o.Length)
	for _, b := range o.Bursts {
		longest = max(longest, b.Prompt+o.Output)
	}
	switch {
	case o.Streams < 1 || o.Runs < 1 || !(o.Rate > 0) || o.Duration <= 0 || min(o.Warmup, o.Drain) < 0:
		return fmt.Errorf("%w: give streams, runs, a rate and a duration, of more than 0", ErrOptions)
	case min(o.Length, o.Prompt, o.Output) < 1:
		return fmt.Errorf("%w: prompts and completions need a token", ErrOptions)
	case longest > limits.Context:
		return fmt.Errorf("%w: a prompt and its completion of up to %d tokens: the context holds %d", ErrOptions, longest,
			limits.Context)
	}
	return nil
}

// arriving measures one target.
type arriving struct {
	ArrivalOptions
	target Target
	limits client.Limits
	mu     sync.Mutex
	random *rand.Rand
}

// work draws a completion.
func (a *arriving) work(length, output int) Work {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Work{Tokens: prompt(a.random, length, a.limits.Vocab), MaxTokens: output}
}

// streams measures the streams, beside prompts that arrive at a rate, or alone.
func (a *arriving) streams(ctx context.Context, rate float64) (StreamsRow, error) {
	row := StreamsRow{Target: a.target.Name(), Streams: a.Streams, Rate: rate}
	running, stop := context.WithCancel(ctx)
	defer stop()
	begin := time.Now().Add(a.Warmup)
	end := begin.Add(a.Duration)
	var streams sync.WaitGroup
	of := make([][]Completion, a.Streams)
	for i := range of {
		first := max(1, a.Length*(i+1)/a.Streams)
		streams.Go(func() { of[i] = a.stream(running, first, end) })
	}
	pause(ctx, time.Until(begin))
	if rate > 0 {
		row.Prompt = a.Prompt
		row.TTFT, row.Failed = a.arrive(ctx, rate, end)
	}
	pause(ctx, time.Until(end))
	stop()
	streams.Wait()
	if ctx.Err() != nil {
		return row, ctx.Err()
	}
	var err error
	row.ITL, err = gapsWithin(of, begin, end)
	return row, err
}

// stream makes completions, one after the other, until end or until one fails. The first one has a length of its own.
func (a *arriving) stream(ctx context.Context, first int, end time.Time) (all []Completion) {
	for length := first; ctx.Err() == nil && time.Now().Before(end); length = a.Length {
		c := measure(ctx, a.target, a.work(streamPrompt, length), time.Now())
		all = append(all, c)
		if c.Err != nil {
			break
		}
	}
	return all
}

// gapsWithin summarises the times between tokens that came between begin and end. The error is that of a completion
// that was not cut off at the end.
func gapsWithin(of [][]Completion, begin, end time.Time) (Summary, error) {
	itl := NewRecorder()
	for _, all := range of {
		for i := range all {
			c := &all[i]
			for k := 1; k < len(c.Arrivals); k++ {
				if at := c.Due.Add(c.Arrivals[k]); at.After(begin) && at.Before(end) {
					itl.Add(c.Arrivals[k] - c.Arrivals[k-1])
				}
			}
			if c.Err != nil && !errors.Is(c.Err, context.Canceled) {
				return Summary{}, fmt.Errorf("a stream failed: %w", c.Err)
			}
		}
	}
	return itl.Summary(), nil
}

// arrive sends prompts at a rate until end, and returns the times to their first tokens and how many failed. They are due at
// the same times for each target.
func (a *arriving) arrive(ctx context.Context, rate float64, end time.Time) (Summary, int) {
	ctx, cancel := context.WithDeadline(ctx, end.Add(a.Drain))
	defer cancel()
	ttft, failed := NewRecorder(), 0
	random := rand.New(rand.NewPCG(a.Seed, 4)) // apart from work's, from which streams draw as often as the target lets them
	var mu sync.Mutex
	var requests sync.WaitGroup
	for due := time.Now(); ; {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if !due.Before(end) || ctx.Err() != nil {
			break
		}
		w, at := a.work(a.Prompt, a.Output), due
		pause(ctx, time.Until(due))
		requests.Go(func() {
			c := measure(ctx, a.target, w, at)
			mu.Lock()
			defer mu.Unlock()
			if c.Err != nil {
				failed++
				return
			}
			ttft.Add(c.TTFT())
		})
	}
	requests.Wait()
	return ttft.Summary(), failed
}

// bursts sends a burst several times, each when the one before has ended.
func (a *arriving) bursts(ctx context.Context, b Burst) (BurstRow, error) {
	row := BurstRow{Target: a.target.Name(), Requests: b.Requests, Prompt: b.Prompt}
	for run := range a.Runs + 1 {
		first, err := a.burst(ctx, b)
		if err != nil {
			return row, err
		}
		if run == 0 {
			continue
		}
		s := Summarize(first)
		row.First, row.P50, row.Last = append(row.First, s.Min), append(row.P50, s.P50), append(row.Last, s.Max)
	}
	return row, nil
}

// burst sends requests at once, and returns the times to their first tokens.
func (a *arriving) burst(ctx context.Context, b Burst) ([]time.Duration, error) {
	all := make([]Completion, b.Requests)
	var requests sync.WaitGroup
	start := make(chan time.Time)
	for i := range all {
		w := a.work(b.Prompt, a.Output)
		requests.Go(func() { all[i] = measure(ctx, a.target, w, <-start) })
	}
	due := time.Now()
	for range all {
		start <- due
	}
	requests.Wait()
	var first []time.Duration
	for i := range all {
		if all[i].Err != nil {
			return nil, fmt.Errorf("a request of a burst failed: %w", all[i].Err)
		}
		first = append(first, all[i].TTFT())
	}
	return first, nil
}
