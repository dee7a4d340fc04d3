package engine

import (
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
)

// mixedRows returns MixedRows, or nil if no step is mixed. A draft model would have to follow both kinds of rows, and a
// model for embeddings has one kind.
func (o Options) mixedRows() func(n int) (rows, most int) {
	if o.asksModel() || o.Embeddings || o.mixedSamples() < 2 {
		return nil
	}
	return o.MixedRows
}

// mixedSamples returns the most sampled rows of a mixed step: those of running sequences, and the last ones of prompts.
func (o Options) mixedSamples() int { return min(o.slots(), scheduler.MaxPrompts) }

// mixedGrain is the grain of half of the most prompt rows in the lattice, which is that of the scheduler's chunks.
const mixedGrain = 16

// mixedLattice returns the keys of mixed steps that are captured at start: with the numbers of generated rows that the
// decode buckets have in such steps, and with the most prompt rows or half as many.
func (o Options) mixedLattice() (keys []graphs.Key) {
	rows := o.mixedRows()
	if rows == nil {
		return nil
	}
	seen := map[int]bool{}
	for _, k := range graphs.Lattice(nil, 0, o.MaxBatch) {
		n := int(k.Rows)
		generated, most := rows(n)
		if generated == 0 || n >= o.mixedSamples() || seen[generated] {
			continue
		}
		seen[generated] = true
		keys = append(keys, graphs.Mixed(generated, most))
		if half := (most/2 + mixedGrain - 1) / mixedGrain * mixedGrain; half > 0 && half < most {
			keys = append(keys, graphs.Mixed(generated, half))
		}
	}
	return keys
}
