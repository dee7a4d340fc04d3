//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"reel/generator/internal/assembly"
	"reel/generator/internal/config"
	"reel/generator/internal/model"
	"reel/kernels"
	"reel/kernels/device"
	"reel/protocol"
)

// opsOptions says which passes are measured.
type opsOptions struct {
	decode  string // batches
	prefill string // prompt lengths
	context int    // tokens that each row of a decode attends to
	json    bool
}

// opsReport is what ops prints as JSON. reel-bench reads it.
type opsReport struct {
	Model   string           `json:"model"`
	Device  string           `json:"device"`
	Version string           `json:"version"`
	Machine protocol.Machine `json:"machine"`
	Shape   protocol.Shape   `json:"shape"`
	ReadGBs float64          `json:"read_gbs"` // 10⁹ bytes a second, of an op that only reads
	Rows    []opRow          `json:"rows"`
}

// opRow is one kind of op of one pass, over all layers.
type opRow struct {
	Kernel   string    `json:"kernel"` // "pass" is all of them together
	Phase    string    `json:"phase"`  // decode or prefill
	Rows     int       `json:"rows"`
	Context  int       `json:"context"`  // tokens that the last row attends to
	Launches int       `json:"launches"` // of one pass
	US       float64   `json:"us"`       // of one launch: median of TimesUS
	TimesUS  []float64 `json:"times_us"` // each the mean over the replay of a graph
	Bytes    int64     `json:"bytes"`    // that one launch has to move; mean of the layers
	Flops    int64     `json:"flops"`
}

// opsCommand measures every op at the model's shapes.
func (p *program) opsCommand() *cobra.Command {
	var o config.Options
	var ops opsOptions
	settings := config.Settings(&o)
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Measure each op of the model's passes",
		Long: "ops captures the ops of each kind, of all layers, into one graph and replays it. It prints what one\n" +
			"launch takes and the rates at which it moves bytes and computes, beside the rate at which the device\n" +
			"reads memory and does nothing else.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.readForDevice(cmd, settings, &o); err != nil {
				return err
			}
			report, err := measureOps(o, ops)
			if err != nil {
				return err
			}
			return report.write(p.stdout, ops.json)
		},
	}
	addSettings(cmd, settings)
	cmd.Flags().StringVar(&ops.decode, "decode", "1,8", "`batches` of the decode passes")
	cmd.Flags().StringVar(&ops.prefill, "prefill", "50,100,200,400", "`lengths` of the prefill passes, those that fit a step")
	cmd.Flags().IntVar(&ops.context, "context", 256, "tokens that each row of a decode attends to")
	cmd.Flags().BoolVar(&ops.json, "json", false, "print one JSON object")
	return cmd
}

// opsPass is one pass to be measured.
type opsPass struct {
	phase         string
	rows, context int
}

// sequences are those that a pass is of; of each, one token is drawn.
func (p opsPass) sequences() int {
	if p.phase == "decode" {
		return p.rows
	}
	return 1
}

// passes are those that o asks for and the plan can hold.
func (o *opsOptions) passes(chunk, batch, context int) (all []opsPass, err error) {
	decode, err := config.ParseCounts(o.decode)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--decode: %w", err)
	}
	prefill, err := config.ParseCounts(o.prefill)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--prefill: %w", err)
	}
	if o.context < 1 {
		return nil, config.Refuse(config.ErrConfig, "--context %d: it must be 1 and more", o.context)
	}
	for _, n := range decode {
		if n <= batch {
			all = append(all, opsPass{"decode", n, min(o.context, context)})
		}
	}
	for _, n := range prefill {
		if n <= min(chunk, context) {
			all = append(all, opsPass{"prefill", n, n})
		}
	}
	if len(all) == 0 {
		return nil, config.Refuse(config.ErrConfig, "no pass of --decode %s and --prefill %s fits a batch of %d and a step of %d tokens", o.decode, o.prefill, batch, chunk)
	}
	return all, nil
}

// measureOps loads the model and measures its passes.
func measureOps(o config.Options, ops opsOptions) (*opsReport, error) {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return nil, err
	}
	passes, err := ops.passes(l.EngineOptions.Chunk, l.EngineOptions.MaxBatch, l.EngineOptions.Context)
	if err != nil {
		return nil, err
	}
	r, err := newOpsRig(&l, passes)
	if err != nil {
		return nil, err
	}
	report := &opsReport{Model: l.Name, Device: l.Hardware.Name(), Version: release(), Shape: assembly.ShapeOf(l.Model)}
	if report.ReadGBs, err = r.readRate(); err != nil {
		return nil, err
	}
	for _, p := range passes {
		rows, err := r.measure(p)
		if err != nil {
			return nil, fmt.Errorf("%s of %d rows: %w", p.phase, p.rows, err)
		}
		report.Rows = append(report.Rows, rows...)
	}
	again, err := r.readRate() // others may have been busy the first time
	if err != nil {
		return nil, err
	}
	report.ReadGBs, report.Machine = max(report.ReadGBs, again), l.Hardware.Machine()
	return report, r.close()
}

// newOpsRig takes the memory that the passes need.
func newOpsRig(l *assembly.Prepared, passes []opsPass) (*opsRig, error) {
	g := model.Geometry{MaxBatch: l.EngineOptions.MaxBatch, PageTokens: l.EngineOptions.PageTokens, RingSlots: opsRing, KVType: l.EngineOptions.KVType}
	for _, p := range passes {
		g.MaxRows, g.Context = max(g.MaxRows, p.rows), max(g.Context, p.context)
		g.Pages = max(g.Pages, p.sequences()*((p.context+g.PageTokens-1)/g.PageTokens))
	}
	r := &opsRig{dev: l.Hardware.Device, model: l.Model}
	var err error
	if r.stream, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	r.memory, err = l.Model.NewStepMemory(r.dev, g)
	return r, err
}

// write prints the report as JSON, or a line for each row.
func (r *opsReport) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	fmt.Fprintf(w, "%s on %s: reading %.1f GB/s\n", r.Model, r.Machine.Name, r.ReadGBs)
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%-7s %4d rows %5d tokens  %-7s %4d × %10.2f us %8.1f GB/s %8.2f TFLOP/s\n", row.Phase, row.Rows, row.Context, row.Kernel,
			row.Launches, row.US, float64(row.Bytes)/row.US/1e3, float64(row.Flops)/row.US/1e6)
	}
	return nil
}

// kinds are the ops by kernel, in the order of their first launch.
func kinds(ops []device.Op) (names []string, by map[string][]device.Op) {
	by = map[string][]device.Op{}
	for _, op := range ops {
		name := op.Kernel()
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		by[name] = append(by[name], op)
	}
	return names, by
}

// stages counts the ops that take a step's descriptor.
func stages(ops []device.Op) (n uint64) {
	for _, op := range ops {
		if _, ok := op.(kernels.Stage); ok {
			n++
		}
	}
	return n
}
