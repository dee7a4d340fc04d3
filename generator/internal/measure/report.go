// Package measure times the ops of a model's passes, each kind by itself, and scores texts with a model.
package measure

import (
	"encoding/json"
	"fmt"
	"io"

	"reel.internal/reel/protocol"
)

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
