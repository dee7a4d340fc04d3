package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// Startup is the result of [MeasureStartup].
type Startup struct {
	Head
	Runs     []Start `json:"runs"`      // without the warm-up, which fills the page cache
	WarmupMS float64 `json:"warmup_ms"` // of the warm-up, exec to first token
	Welcome  Summary `json:"welcome_ms"`
	Token    Summary `json:"token_ms"`
	Memory   Memory  `json:"memory"`
}

// Start is one start.
type Start struct {
	WelcomeMS    float64 `json:"welcome_ms"`      // exec to welcome
	TokenMS      float64 `json:"token_ms"`        // exec to the first token
	Graphs       uint64  `json:"graphs"`          // captured at start
	CaptureMS    float64 `json:"capture_ms"`      // for all of them
	GraphsPerS   float64 `json:"graphs_per_s"`    // while capturing
	MSPerGraph   float64 `json:"ms_per_graph"`    // median time of capture, instantiation and upload
	BytesByGraph int64   `json:"bytes_per_graph"` // of device memory
}

// MeasureStartup starts a generator runs times, after one warm-up. describe returns the
// provenance for a status. Errors are those of Launch and of the generator.
func MeasureStartup(
	ctx context.Context, l Launch, runs int, describe func(*client.Status) Provenance, progress Progress,
) (*Startup, error) {
	if runs < 1 {
		return nil, fmt.Errorf("%w: %d starts: at least 1 is needed", ErrOptions, runs)
	}
	report := &Startup{Head: Head{Kind: "startup"}}
	welcome, token := NewRecorder(), NewRecorder()
	for run := range runs + 1 {
		s, err := startOnce(ctx, l, func(status *client.Status) {
			report.Provenance, report.Memory = describe(status), MemoryOf(status)
		})
		if err != nil {
			return nil, err
		}
		if run == 0 {
			report.WarmupMS = s.TokenMS
		} else {
			report.Runs = append(report.Runs, s)
			welcome.Add(time.Duration(s.WelcomeMS * float64(time.Millisecond)))
			token.Add(time.Duration(s.TokenMS * float64(time.Millisecond)))
		}
		if progress != nil {
			progress(run+1, runs+1)
		}
	}
	report.Welcome, report.Token = welcome.Summary(), token.Summary()
	return report, nil
}

// startOnce starts a generator, makes one token, calls note with the status, and stops the
// generator.
func startOnce(ctx context.Context, l Launch, note func(*client.Status)) (s Start, err error) {
	status, err := l.use(ctx, func(p *Process, c *client.Client) error {
		s.WelcomeMS = milliseconds(time.Since(p.Started))
		random := rand.New(rand.NewPCG(1, 0))
		w := Work{Tokens: prompt(random, min(10, c.Limits().Context-1), c.Limits().Vocab), MaxTokens: 1}
		first := measure(ctx, NewReel(c), w, p.Started)
		if err := first.short(w); err != nil {
			return err
		}
		s.TokenMS = milliseconds(first.TTFT())
		return nil
	}, note)
	if err != nil {
		return s, err
	}
	s.captured(status.Graphs)
	return s, nil
}

// captured records the captures at start.
func (s *Start) captured(g protocol.GraphPool) {
	s.Graphs, s.CaptureMS = g.Precaptured, 1000*g.CaptureS
	s.MSPerGraph, s.BytesByGraph = g.CaptureMedianMS, g.GraphBytes
	if g.CaptureS > 0 {
		s.GraphsPerS = float64(g.Precaptured) / g.CaptureS
	}
}

// Tables returns a table with a row for each start.
func (s *Startup) Tables() []Table {
	t := Table{Title: s.Provenance.Model + ": starts, from exec; milliseconds", Notes: s.notes(), Columns: []string{
		"start", "to welcome", "to first token", "graphs", "captures", "graphs/s", "ms/graph", "KiB/graph",
	}}
	for i, r := range s.Runs {
		t.row(i+1, r.WelcomeMS, r.TokenMS, r.Graphs,
			orDash(r.CaptureMS), orDash(r.GraphsPerS), orDash(r.MSPerGraph), orDash(float64(r.BytesByGraph)/1024))
	}
	t.row("P50", s.Welcome.P50, s.Token.P50, "", "", "", "", "")
	return []Table{t}
}

// Metrics returns the times of each start.
func (s *Startup) Metrics() []Metric {
	welcome, token := Metric{Name: "startup/welcome", Unit: "ms"}, Metric{Name: "startup/token", Unit: "ms"}
	graphs := Metric{Name: "startup/graphs", Unit: "graphs/s", Higher: true}
	for _, r := range s.Runs {
		welcome.Values, token.Values = append(welcome.Values, r.WelcomeMS), append(token.Values, r.TokenMS)
		graphs.Values = append(graphs.Values, r.GraphsPerS)
	}
	return []Metric{welcome, token, graphs}
}

// Charts returns none.
func (s *Startup) Charts() []Chart { return nil }
