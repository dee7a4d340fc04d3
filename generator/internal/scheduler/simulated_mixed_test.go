package scheduler

import "reel.internal/reel/kernels"

// checkMixed checks the order of a step's rows: generated rows, in a mixed step with padding after them, then those of
// prompts.
func (m *simulation) checkMixed(step *simulatedStep) {
	generated, padding := 0, 0
	for i, row := range step.Rows {
		switch {
		case row.Slot == kernels.NoSlot:
			padding++
		case row.Position == kernels.FromDevice:
			if generated++; step.prefill && (i >= step.mixed || padding > 0) || step.prefill && step.Samples[i] != int32(i) {
				m.fault("step %d: row %d of %d generated ones is %+v, samples %v", step.Number, i, step.mixed, row, step.Samples)
			}
		case i < step.mixed:
			m.fault("step %d: row %d of %d generated ones is a prompt's", step.Number, i, step.mixed)
		}
	}
	if step.mixed == 0 && padding > 0 || step.mixed > 0 && (!step.prefill || generated == 0 ||
		step.mixed >= len(step.Rows) || len(step.Samples) > min(m.s.MaxBatch+m.s.Reserve, MaxPrompts)) {
		m.fault("step %d: %d generated rows, %d of padding and %d samples of %d rows", step.Number, step.mixed, padding,
			len(step.Samples), len(step.Rows))
	}
	if step.mixed > 0 {
		m.mixed, m.padded = m.mixed+1, m.padded+min(1, padding)
	}
}
