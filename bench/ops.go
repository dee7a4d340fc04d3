package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"reel/protocol"
)

// Ops is what reel-generator ops --json prints, and where it was run.
type Ops struct {
	Head
	OpsReport
}

// OpsReport is each kernel's time at a model's shapes, as the generator
// measures it.
type OpsReport struct {
	Model   string           `json:"model"`
	Device  string           `json:"device"`
	Version string           `json:"version"`
	Machine protocol.Machine `json:"machine"`
	Shape   protocol.Shape   `json:"shape"`
	// ReadGBs is the rate at which the device reads memory and does nothing
	// else, measured in the same run: the limit of all that is bound by bytes.
	ReadGBs float64 `json:"read_gbs"`
	Rows    []OpRow `json:"rows"`
}

// OpRow is one kind of op in one kind of pass, over all layers.
type OpRow struct {
	Kernel   string  `json:"kernel"`   // "pass" is all of them together
	Phase    string  `json:"phase"`    // decode or prefill
	Rows     int     `json:"rows"`     // sequences of a decode, tokens of a prefill
	Context  int     `json:"context"`  // tokens that each row attends to; of a prefill, the last one
	Launches int     `json:"launches"` // in one pass
	US       float64 `json:"us"`       // one launch: median of TimesUS
	// TimesUS are of one launch, each the mean over the replay of a graph.
	TimesUS []float64 `json:"times_us"`
	Bytes   int64     `json:"bytes"` // that one launch has to read and write: weights, keys and values, logits
	Flops   int64     `json:"flops"`
}

// GBs is the rate at which an op moves its bytes, in 10⁹ a second.
func (r *OpRow) GBs() float64 { return float64(r.Bytes) / r.US / 1e3 }

// TFLOPs is the rate at which an op computes, in 10¹² a second.
func (r *OpRow) TFLOPs() float64 { return float64(r.Flops) / r.US / 1e6 }

// MeasureOps has a generator measure its kernels. Errors: ErrOptions where there
// is none, ErrGenerator with what it said.
func MeasureOps(ctx context.Context, l Launch, describe func(*OpsReport) Provenance) (*Ops, error) {
	path, err := l.find()
	if err != nil {
		return nil, fmt.Errorf("%w: no generator to start: %w: give --generator PATH", ErrOptions, err)
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"ops", "--json"}, l.Args...)...)
	cmd.Env = withoutSettings(cmd.Environ())
	out, err := cmd.Output()
	report := &Ops{Head: Head{Kind: "ops"}}
	if err == nil {
		err = json.Unmarshal(out, &report.OpsReport)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return nil, fmt.Errorf("%w: %s", ErrGenerator, strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return nil, fmt.Errorf("%w: %s ops: %w", ErrGenerator, path, err)
	}
	report.Provenance = describe(&report.OpsReport)
	report.Provenance.Generator = strings.Join(append([]string{filepath.Base(path)}, cmd.Args[1:]...), " ")
	return report, nil
}

// Describe tells where ops were measured.
func (r *OpsReport) Describe(p Provenance) Provenance {
	p.Commit, p.Model, p.Shape, p.Device = r.Version, r.Model, r.Shape, r.Device
	if r.Device == "cuda" {
		p.GPU, p.Driver = r.Machine.Name, r.Machine.Driver
	}
	return p
}

// Tables are a line for each op.
func (o *Ops) Tables() []Table {
	peak := peakOf(o.Provenance.GPU)
	title := fmt.Sprintf("%s: one launch of each op; limit %.0f GB/s, measured by reading", o.Provenance.Model, o.ReadGBs)
	if peak.TFLOPs > 0 {
		title += fmt.Sprintf("; %.0f TFLOP/s, %s", peak.TFLOPs, peak.Source)
	}
	t := Table{Title: title, Columns: []string{"op", "pass", "context", "launches", "µs", "min µs", "GB/s", "TFLOP/s", "of the limit"}, Notes: o.notes()}
	for i := range o.Rows {
		r := &o.Rows[i]
		t.row(r.Kernel, fmt.Sprintf("%s %d", r.Phase, r.Rows), r.Context, r.Launches, r.US, slices.Min(r.TimesUS), r.GBs(), r.TFLOPs(), o.share(r, peak))
	}
	return []Table{t}
}

// share is how near an op comes to the limit that binds it: the greater of the
// shares of both.
func (o *Ops) share(r *OpRow, peak peak) string {
	share := r.GBs() / o.ReadGBs
	if peak.TFLOPs > 0 {
		share = max(share, r.TFLOPs()/peak.TFLOPs)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// peak is the greatest rate of arithmetic that was measured on a GPU.
type peak struct {
	GPU    string
	TFLOPs float64
	Source string
}

// peaks were measured with the vendor's library; memory's rate each run
// measures itself.
var peaks = []peak{{"NVIDIA H200", 790, "a bf16 product of 8192³ by cuBLAS"}}

func peakOf(gpu string) peak {
	for _, p := range peaks {
		if p.GPU == gpu {
			return p
		}
	}
	return peak{}
}

// Metrics are the times of each op.
func (o *Ops) Metrics() []Metric {
	var all []Metric
	for _, r := range o.Rows {
		all = append(all, Metric{Name: fmt.Sprintf("ops/%s-%d/%s", r.Phase, r.Rows, r.Kernel), Unit: "us", Values: r.TimesUS})
	}
	return all
}

// Charts are none.
func (o *Ops) Charts() []Chart { return nil }
