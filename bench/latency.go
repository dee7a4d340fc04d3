package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// DefaultPrompts are the prompt lengths, in tokens, that are measured by default: those of
// the documents that Reel set out from.
var DefaultPrompts = []int{10, 50, 100, 150, 200, 250, 300, 350, 400}

// documents has the documents' own averages over these lengths, measured with rolling
// graphs in PyTorch on a GPU that they do not name.
var documents = Average{Target: "documents", TTFT: 121.23, ITLP99: 17.05, MemoryGB: 14.1}

// documentsTTFT is the documents' TTFT for each of DefaultPrompts, in milliseconds.
var documentsTTFT = []float64{20.77, 145.66, 120.36, 119.58, 125.89, 129.56, 136.74, 143.38, 149.14}

// LatencyOptions are the options of [MeasureLatency].
type LatencyOptions struct {
	Prompts   []int  // tokens of each prompt; nil: those of DefaultPrompts that fit
	MaxTokens int    // of each completion, at least 2
	Runs      int    // measured completions per length, at least 1, after one warm-up
	Seed      uint64 // of the prompts' random tokens
	Cache     string // as in Work
	Progress  Progress
}

// Latency is the result of [MeasureLatency].
type Latency struct {
	Head
	MaxTokens int          `json:"max_tokens"`
	Runs      int          `json:"runs"`
	Rows      []LatencyRow `json:"rows"`
	Averages  []Average    `json:"averages"` // of the rows by target, then the documents'
	Memory    Memory       `json:"memory"`
	// LeftOut are the default prompt lengths that do not fit the context.
	LeftOut []int `json:"left_out,omitempty"`
}

// LatencyRow is the result for one prompt length, over all runs.
type LatencyRow struct {
	Target       string  `json:"target"`
	PromptTokens int     `json:"prompt_tokens"`
	TTFT         Summary `json:"ttft_ms"`        // from the request to its first token
	ITL          Summary `json:"itl_ms"`         // between consecutive tokens
	WarmupTTFT   float64 `json:"warmup_ttft_ms"` // of the warm-up, which counts for nothing else
	TokensPerS   float64 `json:"tokens_per_s"`   // after the first token; median of the runs
	// GBPerS is the rate at which these tokens read weights, keys and values, each once;
	// 0 if the generator does not report its sizes.
	GBPerS  float64         `json:"gb_per_s,omitempty"`
	Graphs  protocol.Graphs `json:"graphs"`  // steps of all runs, by launch
	Samples int             `json:"samples"` // of ITL
	// CachedTokens are the prompt tokens of all runs that the server had cached.
	CachedTokens int   `json:"cached_tokens,omitempty"`
	Runs         []Run `json:"runs"`
}

// Run has the times of one completion, to judge noise by.
type Run struct {
	TTFT       float64 `json:"ttft_ms"`
	ITLP50     float64 `json:"itl_p50_ms"`
	ITLMax     float64 `json:"itl_max_ms"`
	TokensPerS float64 `json:"tokens_per_s"`
}

// Average is the mean of a target's rows.
type Average struct {
	Target     string  `json:"target"`
	TTFT       float64 `json:"ttft_p50_ms"`
	ITLP50     float64 `json:"itl_p50_ms,omitempty"`
	ITLP99     float64 `json:"itl_p99_ms"`
	TokensPerS float64 `json:"tokens_per_s,omitempty"`
	MemoryGB   float64 `json:"memory_gb,omitempty"` // 10⁹ bytes
}

// MeasureLatency runs greedy completions one after the other, alternating between targets,
// and measures TTFT and ITL at the client. limits are those of the first target. Errors are
// ErrOptions and those of the targets.
func MeasureLatency(ctx context.Context, targets []Target, limits client.Limits, o LatencyOptions) (*Latency, error) {
	prompts, leftOut, err := o.fit(limits)
	if err != nil {
		return nil, err
	}
	m := latencies{
		LatencyOptions: o, targets: targets, vocab: limits.Vocab, bursts: make([]bursts, len(targets)),
		random: rand.New(rand.NewPCG(o.Seed, 0)), steps: len(prompts) * (o.Runs + 1),
	}
	report := &Latency{Head: Head{Kind: "latency"}, MaxTokens: o.MaxTokens, Runs: o.Runs, LeftOut: leftOut}
	for _, n := range prompts {
		rows, err := m.length(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("prompt of %d tokens: %w", n, err)
		}
		report.Rows = append(report.Rows, rows...)
	}
	for i, t := range targets {
		report.Averages = append(report.Averages, averageOf(t.Name(), report.Rows))
		report.warn(m.bursts[i].verdict(t.Name()))
	}
	report.Averages = append(report.Averages, documents)
	report.notePeers(targets)
	report.warnOfCache()
	return report, nil
}

// warnOfCache adds a warning for each row with cached prompt tokens.
func (l *Latency) warnOfCache() {
	for i := range l.Rows {
		if r := &l.Rows[i]; r.CachedTokens > 0 {
			l.warn(fmt.Sprintf("%s: %d of %d prompt tokens came from the server's cache",
				l.label(r.Target, fmt.Sprint(r.PromptTokens)), r.CachedTokens, r.PromptTokens*l.Runs))
		}
	}
}

// SetMemory sets the memory that was in use after the measurement.
func (l *Latency) SetMemory(m Memory) {
	l.Memory = m
	for i := range l.Averages {
		if l.Averages[i].Target == "reel" {
			l.Averages[i].MemoryGB = float64(m.Used) / 1e9
		}
	}
}

// SetRates sets the bytes per second that the tokens after the first read: all matrices
// that a step reads, and the keys and values of the context, which on average is the prompt
// and half of the completion. A layer with a window shorter than the context reads less
// than is counted.
func (l *Latency) SetRates(s *client.Status) {
	position := 0.0 // bytes of keys and values per token
	if tokens := s.KV.Pages * s.KV.PageTokens; tokens > 0 {
		position = float64(s.KV.Bytes) / float64(tokens)
	}
	for i := range l.Rows {
		if r := &l.Rows[i]; r.Target == "reel" && s.Shape.StepBytes > 0 {
			context := float64(r.PromptTokens) + float64(l.MaxTokens)/2
			r.GBPerS = (float64(s.Shape.StepBytes) + position*context) * r.TokensPerS / 1e9
		}
	}
}

// fit returns the prompt lengths to measure, and the default lengths that do not fit the
// context together with the completion.
func (o *LatencyOptions) fit(limits client.Limits) (prompts, leftOut []int, err error) {
	if o.Runs < 1 || o.MaxTokens < 2 {
		return nil, nil, fmt.Errorf("%w: %d runs of %d tokens: at least 1 run and 2 tokens are needed",
			ErrOptions, o.Runs, o.MaxTokens)
	}
	wanted := o.Prompts
	if wanted == nil {
		wanted = DefaultPrompts
	}
	for _, n := range wanted {
		switch {
		case n >= 1 && n+o.MaxTokens <= limits.Context:
			prompts = append(prompts, n)
		case n >= 1 && o.Prompts == nil:
			leftOut = append(leftOut, n)
		default:
			return nil, nil, fmt.Errorf("%w: a prompt of %d tokens and a completion of %d: "+
				"a prompt has at least 1, and the context holds %d for both",
				ErrOptions, n, o.MaxTokens, limits.Context)
		}
	}
	if len(prompts) == 0 {
		return nil, nil, fmt.Errorf("%w: no prompt fits the context of %d tokens with a completion of %d",
			ErrOptions, limits.Context, o.MaxTokens)
	}
	return prompts, leftOut, nil
}

// latencies is the state of a measurement.
type latencies struct {
	LatencyOptions
	targets []Target
	vocab   int
	random  *rand.Rand
	bursts  []bursts // by target
	done    int
	steps   int
}

// length measures prompts of n tokens and returns a row for each target. Each run has
// another prompt, so a cache of prompts does not make later runs faster. The targets
// alternate, and each is first equally often.
func (m *latencies) length(ctx context.Context, n int) ([]LatencyRow, error) {
	rows := make([]LatencyRow, len(m.targets))
	ttft, itl := make([]*Recorder, len(rows)), make([]*Recorder, len(rows))
	for i, t := range m.targets {
		rows[i] = LatencyRow{Target: t.Name(), PromptTokens: n}
		ttft[i], itl[i] = NewRecorder(), NewRecorder()
	}
	for run := range m.Runs + 1 {
		w := Work{Tokens: prompt(m.random, n, m.vocab), MaxTokens: m.MaxTokens, Cache: m.Cache}
		for k := range m.targets {
			i := (run + k) % len(m.targets)
			c := measure(ctx, m.targets[i], w, time.Now())
			if err := c.short(w); err != nil {
				return nil, fmt.Errorf("%s: %w", m.targets[i].Name(), err)
			}
			if run == 0 {
				rows[i].WarmupTTFT = milliseconds(c.TTFT())
				continue
			}
			m.bursts[i].add(&c)
			rows[i].add(&c, ttft[i], itl[i])
		}
		m.step()
	}
	for i := range rows {
		rows[i].close(ttft[i], itl[i])
	}
	return rows, nil
}

func (m *latencies) step() {
	m.done++
	if m.Progress != nil {
		m.Progress(m.done, m.steps)
	}
}

// add adds a run.
func (r *LatencyRow) add(c *Completion, ttft, itl *Recorder) {
	own := NewRecorder()
	for _, gap := range c.Gaps() {
		itl.Add(gap)
		own.Add(gap)
	}
	ttft.Add(c.TTFT())
	add(&r.Graphs, c.Graphs)
	r.CachedTokens += c.CachedTokens
	s := own.Summary()
	run := Run{TTFT: milliseconds(c.TTFT()), ITLP50: s.P50, ITLMax: s.Max}
	if tpot := c.TPOT(); tpot > 0 {
		run.TokensPerS = 1 / tpot.Seconds()
	}
	r.Runs = append(r.Runs, run)
}

// close computes the summaries of the runs.
func (r *LatencyRow) close(ttft, itl *Recorder) {
	r.TTFT, r.ITL = ttft.Summary(), itl.Summary()
	r.Samples = r.ITL.Samples
	var rates []float64
	for _, run := range r.Runs {
		rates = append(rates, run.TokensPerS)
	}
	r.TokensPerS = median(rates)
}

// averageOf returns the mean of a target's rows.
func averageOf(target string, rows []LatencyRow) Average {
	var ttft, p50, p99, rate []float64
	for _, r := range rows {
		if r.Target == target {
			ttft, p50 = append(ttft, r.TTFT.P50), append(p50, r.ITL.P50)
			p99, rate = append(p99, r.ITL.P99), append(rate, r.TokensPerS)
		}
	}
	return Average{Target: target, TTFT: mean(ttft), ITLP50: mean(p50), ITLP99: mean(p99), TokensPerS: mean(rate)}
}
