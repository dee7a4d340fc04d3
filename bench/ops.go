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

	"reel.internal/reel/protocol"
)

// Ops is the output of reel-generator ops --json, with its provenance.
type Ops struct {
	Head
	OpsReport
}

// OpsReport has each kernel's time at a model's shapes, as measured by the generator.
type OpsReport struct {
	Model   string           `json:"model"`
	Device  string           `json:"device"`
	Version string           `json:"version"`
	Machine protocol.Machine `json:"machine"`
	Shape   protocol.Shape   `json:"shape"`
	// ReadGBs is the rate at which the device reads memory when it does nothing else,
	// measured in the same run. It limits all ops that are bound by memory.
	ReadGBs float64 `json:"read_gbs"`
	Rows    []OpRow `json:"rows"`
}

// OpRow is one kind of op in one kind of pass, over all layers.
type OpRow struct {
	Kernel   string  `json:"kernel"`   // "pass": all kernels together
	Phase    string  `json:"phase"`    // decode or prefill
	Rows     int     `json:"rows"`     // sequences of a decode, tokens of a prefill
	Context  int     `json:"context"`  // tokens that each row attends to; for prefill, the last row
	Launches int     `json:"launches"` // in one pass
	US       float64 `json:"us"`       // of one launch: median of TimesUS
	// TimesUS are times of one launch, each the mean over one replay of a graph.
	TimesUS []float64 `json:"times_us"`
	Bytes   int64     `json:"bytes"` // that a launch has to read and write: weights, keys and values, logits
	Flops   int64     `json:"flops"`
}

// GBs returns the rate of an op's memory traffic, in 10⁹ bytes per second.
func (r *OpRow) GBs() float64 { return float64(r.Bytes) / r.US / 1e3 }

// TFLOPs returns the rate of an op's arithmetic, in 10¹² operations per second.
func (r *OpRow) TFLOPs() float64 { return float64(r.Flops) / r.US / 1e6 }

// MeasureOps runs a generator's measurement of its kernels. Errors are ErrOptions if there
// is no generator, and ErrGenerator with its message.
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

// Describe adds the generator's part to p.
func (r *OpsReport) Describe(p Provenance) Provenance {
	p.Commit, p.Model, p.Shape, p.Device = r.Version, r.Model, r.Shape, r.Device
	if r.Device == "cuda" {
		p.GPU, p.Driver = r.Machine.Name, r.Machine.Driver
	}
	return p
}

// Tables returns a table with a row for each op.
func (o *Ops) Tables() []Table {
	peak := peakOf(o.Provenance.GPU)
	title := fmt.Sprintf("%s: one launch of each op; limit %.0f GB/s, measured by reading",
		o.Provenance.Model, o.ReadGBs)
	if peak.TFLOPs > 0 {
		title += fmt.Sprintf("; %.0f TFLOP/s, %s", peak.TFLOPs, peak.Source)
	}
	t := Table{Title: title, Notes: o.notes(), Columns: []string{
		"op", "pass", "context", "launches", "µs", "min µs", "GB/s", "TFLOP/s", "of the limit",
	}}
	for i := range o.Rows {
		r := &o.Rows[i]
		t.row(r.Kernel, fmt.Sprintf("%s %d", r.Phase, r.Rows), r.Context, r.Launches,
			r.US, slices.Min(r.TimesUS), r.GBs(), r.TFLOPs(), o.share(r, peak))
	}
	return []Table{t}
}

// share returns an op's rate as a share of its limit, memory or arithmetic, whichever is
// greater.
func (o *Ops) share(r *OpRow, peak peak) string {
	share := r.GBs() / o.ReadGBs
	if peak.TFLOPs > 0 {
		share = max(share, r.TFLOPs()/peak.TFLOPs)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// peak is the greatest rate of arithmetic measured on a GPU.
type peak struct {
	GPU    string
	TFLOPs float64
	Source string
}

// peaks were measured with the vendor's library. The rate of memory is measured in each run.
var peaks = []peak{{"NVIDIA H200", 790, "a bf16 product of 8192³ by cuBLAS"}}

func peakOf(gpu string) peak {
	for _, p := range peaks {
		if p.GPU == gpu {
			return p
		}
	}
	return peak{}
}

// Metrics returns the times of each op.
func (o *Ops) Metrics() []Metric {
	var all []Metric
	for _, r := range o.Rows {
		name := fmt.Sprintf("ops/%s-%d/%s", r.Phase, r.Rows, r.Kernel)
		all = append(all, Metric{Name: name, Unit: "us", Values: r.TimesUS})
	}
	return all
}

// Charts returns none.
func (o *Ops) Charts() []Chart { return nil }
