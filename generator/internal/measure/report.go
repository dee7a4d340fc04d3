// Package measure times the ops of a model's passes, each kind by itself.
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

// Passes selects the passes to measure. Decode and Prefill are lists such as "1-4,8".
type Passes struct {
	Decode  string // batch sizes
	Prefill string // prompt lengths in tokens
	Context int    // tokens that each row of a decode pass attends to
}

// Report is the JSON that the command ops prints and reel-bench reads.
type Report struct {
	Model   string           `json:"model"`
	Device  string           `json:"device"`
	Version string           `json:"version"`
	Machine protocol.Machine `json:"machine"`
	Shape   protocol.Shape   `json:"shape"`
	ReadGBs float64          `json:"read_gbs"` // rate of an op that only reads, in 10⁹ bytes a second
	Rows    []Row            `json:"rows"`
}

// Row is the measurement of one kind of op in one pass, over all layers.
type Row struct {
	Kernel   string    `json:"kernel"` // "pass": all ops together
	Phase    string    `json:"phase"`  // decode or prefill
	Rows     int       `json:"rows"`
	Context  int       `json:"context"`  // tokens that the last row attends to
	Launches int       `json:"launches"` // in one pass
	US       float64   `json:"us"`       // microseconds of one launch: median of TimesUS
	TimesUS  []float64 `json:"times_us"` // of one launch, each the mean over one replay of a graph
	Bytes    int64     `json:"bytes"`    // least bytes that one launch moves; mean of the layers
	Flops    int64     `json:"flops"`    // of one launch; mean of the layers
}

// pass is one pass to measure.
type pass struct {
	phase         string // decode or prefill
	rows, context int    // tokens
}

// sequences returns how many sequences the pass has. Each samples one token.
func (p pass) sequences() int {
	if p.phase == "decode" {
		return p.rows
	}
	return 1
}

// passes returns the passes that o selects and the plan can hold. Errors: [config.ErrConfig].
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
		return nil, config.Refuse(config.ErrConfig, "--context %d: it must be at least 1", o.Context)
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
		return nil, config.Refuse(config.ErrConfig,
			"no pass of --decode %s and --prefill %s fits a batch of %d and a step of %d tokens",
			o.Decode, o.Prefill, batch, chunk)
	}
	return all, nil
}

// Run loads the model and measures its passes. version is the program's, for the report.
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
	again, err := r.readRate() // another program may have slowed the first one
	if err != nil {
		return nil, err
	}
	report.ReadGBs, report.Machine = max(report.ReadGBs, again), l.Hardware.Machine()
	return report, r.close()
}

// newRig allocates the memory that the passes need.
func newRig(l *assembly.Prepared, passes []pass) (*rig, error) {
	e := l.EngineOptions
	g := model.Geometry{MaxBatch: e.MaxBatch, PageTokens: e.PageTokens, RingSlots: ringSlots, KVType: e.KVType}
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

// Write prints the report, as JSON or as one line per row.
func (r *Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	fmt.Fprintf(w, "%s on %s: reading %.1f GB/s\n", r.Model, r.Machine.Name, r.ReadGBs)
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%-7s %4d rows %5d tokens  %-7s %4d × %10.2f us %8.1f GB/s %8.2f TFLOP/s\n",
			row.Phase, row.Rows, row.Context, row.Kernel,
			row.Launches, row.US, float64(row.Bytes)/row.US/1e3, float64(row.Flops)/row.US/1e6)
	}
	return nil
}

// kinds groups ops by kernel; names are in the order of their first launch.
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

// stages counts the ops that take a descriptor from the ring.
func stages(ops []device.Op) (n uint64) {
	for _, op := range ops {
		if _, ok := op.(kernels.Stage); ok {
			n++
		}
	}
	return n
}
