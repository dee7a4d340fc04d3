package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// RollOptions describe a workload that outgrows the graph budget: in each phase prompts of a
// few lengths, different from those of other phases.
type RollOptions struct {
	Phases    int
	Lengths   int    // different prompt lengths per phase
	Requests  int    // per phase, one after the other
	Longest   int    // prompt, in tokens
	MaxTokens int    // per completion
	MaxGraphs int    // graphs that may be live
	Captured  string // prompt lengths with graphs captured at start
	Seed      uint64
	Progress  Progress
}

// Roll is the result of one workload with the roller on and off.
type Roll struct {
	Head
	Phases    int       `json:"phases"`
	Lengths   int       `json:"lengths"`
	Requests  int       `json:"requests"` // per phase
	MaxTokens int       `json:"max_tokens"`
	MaxGraphs int       `json:"max_graphs"`
	Rows      []RollRow `json:"rows"`
}

// RollRow is the result with the roller on or off.
type RollRow struct {
	Roller   string             `json:"roller"`
	TTFT     Summary            `json:"ttft_ms"`
	Live     Summary            `json:"ttft_live_ms"`    // of requests with a graph for each step's shape
	Missing  Summary            `json:"ttft_missing_ms"` // of the others: padded or eager
	ITL      Summary            `json:"itl_ms"`
	Rolling  Summary            `json:"itl_rolling_ms"` // of requests during which a graph was rolled
	Graphs   protocol.Graphs    `json:"graphs"`         // steps, by launch
	Pool     protocol.GraphPool `json:"pool"`           // at the end
	WarmupMS float64            `json:"warmup_ttft_ms"`
	Points   []RollPoint        `json:"points"`
}

// RollPoint is one request.
type RollPoint struct {
	AtS          float64 `json:"at_s"` // since the first
	PromptTokens int     `json:"prompt_tokens"`
	TTFT         float64 `json:"ttft_ms"`
	ITLP50       float64 `json:"itl_p50_ms"`
	ITLMax       float64 `json:"itl_max_ms"`
	Rolled       uint64  `json:"rolled"`  // graphs captured while serving, so far
	Evicted      uint64  `json:"evicted"` // so far
}

// MeasureRoll runs the same workload on a generator with the roller on, then on one with it
// off. Errors are ErrOptions, and those of Launch and of the generator.
func MeasureRoll(
	ctx context.Context, l Launch, o RollOptions, describe func(*client.Status) Provenance,
) (*Roll, error) {
	if min(o.Phases, o.Lengths, o.Requests, o.MaxGraphs) < 1 || o.MaxTokens < 2 || o.Longest < o.Lengths {
		return nil, fmt.Errorf("%w: a roll needs phases, lengths, requests and graphs, completions of 2 tokens, "+
			"and as many prompt lengths as a phase has", ErrOptions)
	}
	report := &Roll{
		Head: Head{Kind: "roll"}, Phases: o.Phases, Lengths: o.Lengths,
		Requests: o.Requests, MaxTokens: o.MaxTokens, MaxGraphs: o.MaxGraphs,
	}
	for i, roller := range []string{"on", "off"} {
		row, err := o.run(ctx, l, roller, i, func(s *client.Status) {
			if i == 0 {
				report.Provenance = describe(s)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("roller %s: %w", roller, err)
		}
		report.Rows = append(report.Rows, row)
	}
	if report.Rows[0].Pool.Rolled == 0 {
		report.warn("nothing was rolled: the graphs of the start were enough")
	}
	return report, nil
}

// rollBatch is the generator's --max-batch, so that graphs of larger batches take none of
// the budget.
const rollBatch = "4"

// run runs the workload with the roller on or off, and calls note with the generator's
// status at the end. half is 0 for the first run and 1 for the second.
func (o *RollOptions) run(
	ctx context.Context, l Launch, roller string, half int, note func(*client.Status),
) (row RollRow, err error) {
	l.Args = append([]string{
		"--roller", roller, "--max-graphs", fmt.Sprint(o.MaxGraphs),
		"--precapture", o.Captured, "--max-batch", rollBatch,
	}, l.Args...)
	status, err := l.use(ctx, func(_ *Process, c *client.Client) error {
		row, err = o.workload(ctx, c, half)
		return err
	}, note)
	if err != nil {
		return row, err
	}
	row.Roller, row.Pool = roller, status.Graphs
	return row, nil
}

// statusReporter is a generator that also reports its status.
type statusReporter interface {
	Generator
	Limits() client.Limits
	Status(context.Context) (*client.Status, error)
}

// workload makes the requests, which are the same in both halves.
func (o *RollOptions) workload(ctx context.Context, c statusReporter, half int) (row RollRow, err error) {
	longest := min(o.Longest, c.Limits().Context-o.MaxTokens)
	if longest < o.Lengths {
		return row, fmt.Errorf("%w: the context of %d tokens is too short for %d lengths of prompts",
			ErrOptions, c.Limits().Context, o.Lengths)
	}
	random := rand.New(rand.NewPCG(o.Seed, 3))
	target, s := NewReel(c), newRollSums()
	begun := time.Now()
	for phase := range o.Phases {
		lengths := random.Perm(longest)[:o.Lengths]
		for i := range o.Requests {
			n := 1 + lengths[random.IntN(o.Lengths)]
			w := Work{Tokens: prompt(random, n, c.Limits().Vocab), MaxTokens: o.MaxTokens}
			point, err := row.one(ctx, c, target, w, s)
			if err != nil {
				return row, err
			}
			point.AtS = time.Since(begun).Seconds()
			row.Points = append(row.Points, point)
			if o.Progress != nil {
				o.Progress((half*o.Phases+phase)*o.Requests+i+1, 2*o.Phases*o.Requests)
			}
		}
	}
	s.close(&row)
	return row, nil
}

// rollSums collects the samples of a row.
type rollSums struct {
	ttft, live, missing, itl, rolling *Recorder
	rolled                            uint64 // graphs so far
}

func newRollSums() *rollSums {
	return &rollSums{
		ttft: NewRecorder(), live: NewRecorder(), missing: NewRecorder(), itl: NewRecorder(), rolling: NewRecorder(),
	}
}

// add adds a request; rolled is the number of graphs rolled by its end.
func (s *rollSums) add(c *Completion, rolled uint64) {
	s.ttft.Add(c.TTFT())
	if c.Graphs.Padded+c.Graphs.Eager == 0 {
		s.live.Add(c.TTFT())
	} else {
		s.missing.Add(c.TTFT())
	}
	for _, gap := range c.Gaps() {
		s.itl.Add(gap)
		if rolled > s.rolled {
			s.rolling.Add(gap)
		}
	}
	s.rolled = rolled
}

func (s *rollSums) close(r *RollRow) {
	r.TTFT, r.Live, r.Missing = s.ttft.Summary(), s.live.Summary(), s.missing.Summary()
	r.ITL, r.Rolling = s.itl.Summary(), s.rolling.Summary()
}

// one makes one request. The first one is preceded by a warm-up, recorded apart.
func (r *RollRow) one(
	ctx context.Context, c statusReporter, target Target, w Work, sums *rollSums,
) (p RollPoint, err error) {
	if r.WarmupMS == 0 {
		warm := measure(ctx, target, w, time.Now())
		if err := warm.short(w); err != nil {
			return p, err
		}
		r.WarmupMS = milliseconds(warm.TTFT())
	}
	done := measure(ctx, target, w, time.Now())
	if err := done.short(w); err != nil {
		return p, err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return p, err
	}
	sums.add(&done, status.Graphs.Rolled)
	add(&r.Graphs, done.Graphs)
	s := Summarize(done.Gaps())
	return RollPoint{
		PromptTokens: len(w.Tokens), TTFT: milliseconds(done.TTFT()), ITLP50: s.P50, ITLMax: s.Max,
		Rolled: status.Graphs.Rolled, Evicted: status.Graphs.Evicted,
	}, nil
}

// Tables returns a table with columns for on and off.
func (r *Roll) Tables() []Table {
	t := Table{
		Title: fmt.Sprintf("%s: %d phases of %d requests over %d prompt lengths each, %d graphs at most; "+
			"milliseconds at the client", r.Provenance.Model, r.Phases, r.Requests, r.Lengths, r.MaxGraphs),
		Columns: []string{"roller"}, Notes: r.notes(),
	}
	rows := []struct {
		name string
		of   func(*RollRow) any
	}{
		{"TTFT P50", func(r *RollRow) any { return r.TTFT.P50 }},
		{"TTFT P99", func(r *RollRow) any { return r.TTFT.P99 }},
		{"TTFT P50, graphs live", func(r *RollRow) any { return orDash(r.Live.P50) }},
		{"TTFT P50, one missing", func(r *RollRow) any { return orDash(r.Missing.P50) }},
		{"ITL P50", func(r *RollRow) any { return r.ITL.P50 }},
		{"ITL P99", func(r *RollRow) any { return r.ITL.P99 }},
		{"ITL P99 while rolling", func(r *RollRow) any { return orDash(r.Rolling.P99) }},
		{"ITL max", func(r *RollRow) any { return r.ITL.Max }},
		{"steps precaptured", func(r *RollRow) any { return r.Graphs.Precaptured }},
		{"steps rolled", func(r *RollRow) any { return r.Graphs.Rolled }},
		{"steps padded", func(r *RollRow) any { return r.Graphs.Padded }},
		{"steps eager", func(r *RollRow) any { return r.Graphs.Eager }},
		{"graphs rolled", func(r *RollRow) any { return r.Pool.Rolled }},
		{"graphs evicted", func(r *RollRow) any { return r.Pool.Evicted }},
		{"graphs live", func(r *RollRow) any { return r.Pool.Live }},
		{"captures failed", func(r *RollRow) any { return r.Pool.Failed }},
	}
	for i := range r.Rows {
		t.Columns = append(t.Columns, r.Rows[i].Roller)
	}
	for _, row := range rows {
		cells := []any{row.name}
		for i := range r.Rows {
			cells = append(cells, row.of(&r.Rows[i]))
		}
		t.row(cells...)
	}
	return []Table{t}
}

// Metrics returns TTFT and ITL of each request.
func (r *Roll) Metrics() []Metric {
	var all []Metric
	for _, row := range r.Rows {
		name := "roll/roller=" + row.Roller
		ttft, itl := Metric{Name: name + "/ttft", Unit: "ms"}, Metric{Name: name + "/itl-max", Unit: "ms"}
		for _, p := range row.Points {
			ttft.Values, itl.Values = append(ttft.Values, p.TTFT), append(itl.Values, p.ITLMax)
		}
		all = append(all, ttft, itl)
	}
	return all
}

// Charts returns charts of ITL and TTFT over time, with a mark for each graph rolled.
func (r *Roll) Charts() []Chart {
	var charts []Chart
	for i := range r.Rows {
		row := &r.Rows[i]
		chart := Chart{
			Title: "Roller " + row.Roller + ": time between tokens, by request",
			X:     "s", Y: "ms", MarksAre: "graph rolled",
		}
		var at, p50, most, ttft []float64
		rolled := uint64(0)
		for _, p := range row.Points {
			at, p50 = append(at, p.AtS), append(p50, p.ITLP50)
			most, ttft = append(most, p.ITLMax), append(ttft, p.TTFT)
			if p.Rolled > rolled {
				chart.Marks = append(chart.Marks, p.AtS)
			}
			rolled = p.Rolled
		}
		chart.add(Series{Name: "ITL max", X: at, Y: most, Dots: true})
		chart.add(Series{Name: "ITL P50", X: at, Y: p50})
		charts = append(charts, chart, Chart{
			Title: "Roller " + row.Roller + ": time to first token",
			X:     "s", Y: "ms", Marks: chart.Marks, MarksAre: chart.MarksAre,
			Series: []Series{{Name: "TTFT", X: at, Y: ttft, Dots: true}},
		})
	}
	return charts
}
