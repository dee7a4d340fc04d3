package bench

import "fmt"

// Reported has figures of another system that reel-bench did not measure. They were copied into
// a file by hand, with their source.
type Reported struct {
	Head
	System string `json:"system"`
	Source string `json:"source"` // who measured it, how and when; whole sentences
	// TTFT has the time to the first token by prompt length.
	TTFT []ReportedTTFT `json:"ttft"`
	// TokensPerS is the rate of one stream after its first token.
	TokensPerS float64 `json:"tokens_per_s"`
}

// ReportedTTFT is the time to the first token for one prompt length.
type ReportedTTFT struct {
	PromptTokens int     `json:"prompt_tokens"`
	Milliseconds float64 `json:"ms"`
}

// Tables returns one table of all figures.
func (r *Reported) Tables() []Table {
	t := Table{Title: r.System + ", as reported; milliseconds", Columns: []string{"prompt", "TTFT"}, Notes: []string{
		r.rate(), r.Source,
	}}
	for _, p := range r.TTFT {
		t.row(p.PromptTokens, p.Milliseconds)
	}
	return []Table{t}
}

// rate returns the rate as a note.
func (r *Reported) rate() string { return fmt.Sprintf("%.0f tok/s, one stream", r.TokensPerS) }

// Metrics returns nil: there are no runs to compare.
func (r *Reported) Metrics() []Metric { return nil }

// Charts returns nil: report draws the figures beside those of Reel.
func (r *Reported) Charts() []Chart { return nil }

// ttft returns the time to the first token after a prompt, or 0 if it was not reported.
func (r *Reported) ttft(prompt int) float64 {
	for _, p := range r.TTFT {
		if p.PromptTokens == prompt {
			return p.Milliseconds
		}
	}
	return 0
}

// series returns the times to the first token against the prompt's length.
func (r *Reported) series() Series {
	s := Series{Name: r.System}
	for _, p := range r.TTFT {
		s.X, s.Y = append(s.X, float64(p.PromptTokens)), append(s.Y, p.Milliseconds)
	}
	return s
}
