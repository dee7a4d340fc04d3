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

// mixedSamples returns the most sampled rows of a mixed step.
func (o Options) mixedSamples() int { return scheduler.MixedSamples(o.slots()) }

// mixedTable returns mixedRows as a table, since the scheduler asks in each step.
func (o Options) mixedTable() func(n int) (rows, most int) {
	of := o.mixedRows()
	if of == nil {
		return nil
	}
	table := make([][2]int, o.slots()+1)
	for n := 1; n < len(table); n++ {
		table[n][0], table[n][1] = of(n)
	}
	return func(n int) (rows, most int) { return table[n][0], table[n][1] }
}

// promptGrain is the grain of prompt rows in the lattice, in mixed steps and in steps of several prompts, and the least
// number of them in a mixed step. The scheduler's chunks have the same grain.
const promptGrain = 16

// mixedLattice returns the keys of mixed steps that are captured at start: with the numbers of generated rows that the
// decode buckets have in such steps, and with the most prompt rows, half as many and so on, MixedGraphs of each. The roller
// captures others that are used.
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
		for part, n := most, 1; part > promptGrain && n != o.MixedGraphs; n++ {
			part = (part/2 + promptGrain - 1) / promptGrain * promptGrain
			keys = append(keys, graphs.Mixed(generated, part))
		}
	}
	return keys
}
