package measure

import (
	"fmt"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
)

// Run loads the model and measures its passes. version is the program's, for the report.
func Run(o config.Options, ops Passes, version string) (*Report, error) {
	l, err := assembly.Prepare(o, func(float64, string) {})
	if err != nil {
		return nil, err
	}
	e := l.EngineOptions
	passes, err := ops.passes(max(e.Chunk, e.LongChunk), e.MaxBatch, e.Prompts(), e.Context)
	if err != nil {
		return nil, err
	}
	r, err := newRig(&l, passes, ops.Served)
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
