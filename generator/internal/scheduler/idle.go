package scheduler

import "reel/kernels"

// Idle forms a step that serves nobody: all of its rows are padding. It is a step
// like any other to the device, whose counter it moves on.
func (s *Scheduler) Idle() *Batch {
	b := s.blank()
	s.Rebuild(b)
	s.number++
	return b
}

// blank is the next batch, with the memory of an old one.
func (s *Scheduler) blank() *Batch {
	b := &s.batches[s.number%uint64(len(s.batches))]
	*b = Batch{Step: kernels.Step{Number: s.number, Rows: b.Step.Rows[:0], Samples: b.Step.Samples[:0], Inits: b.Step.Inits[:0], Pages: b.Step.Pages[:0]},
		Sampled: b.Sampled[:0], Served: b.Served[:0], Joined: b.Joined[:0], entries: b.entries[:0]}
	return b
}
