package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"reel/generator/internal/assembly"
	"reel/generator/internal/config"
	"reel/generator/internal/model"
	"reel/kernels"
	"reel/kernels/device"
	"reel/protocol"
)

// Passes says which passes are measured.
type Passes struct {
	Decode  string // batches
	Prefill string // prompt lengths
	Context int    // tokens that each row of a decode attends to
}

// Report is what ops prints as JSON. reel-bench reads it.
type Report struct {
	Model   string           `json:"model"`
	Device  string           `json:"device"`
	Version string           `json:"version"`
	Machine protocol.Machine `json:"machine"`
	Shape   protocol.Shape   `json:"shape"`
	ReadGBs float64          `json:"read_gbs"` // 10⁹ bytes a second, of an op that only reads
	Rows    []Row            `json:"rows"`
}

// Row is one kind of op of one pass, over all layers.
type Row struct {
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

// pass is one pass to be measured.
type pass struct {
	phase         string
	rows, context int
}

// sequences are those that a pass is of; of each, one token is drawn.
func (p pass) sequences() int {
	if p.phase == "decode" {
		return p.rows
	}
	return 1
}

// passes are those that o asks for and the plan can hold.
func (o *Passes) passes(chunk, batch, context int) (all []pass, err error) {
	decode, err := config.ParseCounts(o.Decode)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--decode: %w", err)
	}
	prefill, err := config.ParseCounts(o.Prefill)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--prefill: %w", err)
	}
	if o.Context < 1 {
		return nil, config.Refuse(config.ErrConfig, "--context %d: it must be 1 and more", o.Context)
	}
	for _, n := range decode {
		if n <= batch {
			all = append(all, pass{"decode", n, min(o.Context, context)})
		}
	}
	for _, n := range prefill {
		if n <= min(chunk, context) {
			all = append(all, pass{"prefill", n, n})
		}
	}
	if len(all) == 0 {
		return nil, config.Refuse(config.ErrConfig, "no pass of --decode %s and --prefill %s fits a batch of %d and a step of %d tokens", o.Decode, o.Prefill, batch, chunk)
	}
	return all, nil
}

// Run loads the model and measures its passes.
func Run(o config.Options, ops Passes, version string) (*Report, error) {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return nil, err
	}
	passes, err := ops.passes(l.EngineOptions.Chunk, l.EngineOptions.MaxBatch, l.EngineOptions.Context)
	if err != nil {
		return nil, err
	}
	r, err := newRig(&l, passes)
	if err != nil {
		return nil, err
	}
	report := &Report{Model: l.Name, Device: l.Hardware.Name(), Version: version, Shape: assembly.ShapeOf(l.Model)}
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

// newRig takes the memory that the passes need.
func newRig(l *assembly.Prepared, passes []pass) (*rig, error) {
	g := model.Geometry{MaxBatch: l.EngineOptions.MaxBatch, PageTokens: l.EngineOptions.PageTokens, RingSlots: ringSlots, KVType: l.EngineOptions.KVType}
	for _, p := range passes {
		g.MaxRows, g.Context = max(g.MaxRows, p.rows), max(g.Context, p.context)
		g.Pages = max(g.Pages, p.sequences()*((p.context+g.PageTokens-1)/g.PageTokens))
	}
	r := &rig{dev: l.Hardware.Device, model: l.Model}
	var err error
	if r.stream, err = r.dev.NewStream(); err != nil {
		return nil, err
	}
	r.memory, err = l.Model.NewStepMemory(r.dev, g)
	return r, err
}

// Write prints the report as JSON, or a line for each row.
func (r *Report) Write(w io.Writer, asJSON bool) error {
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
