package engine

import (
	"slices"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// move is a page that is being copied.
type move struct {
	scheduler.Move
	done device.Event // of the copy
}

// relocate begins to copy a page of q, beside the steps. The copy waits for the steps in flight that may write
// the page, and no further step names q until the copy is done. If the page cannot be moved, nothing happens.
func (e *Engine) relocate(q *scheduler.Sequence, index int) error {
	m, ok := e.sched.Relocate(q, index)
	if !ok {
		return nil
	}
	done, err := e.dev.NewEvent()
	if err != nil {
		return err
	}
	e.moves = append(e.moves, move{m, done})
	for _, step := range e.inFlight {
		if number := step.batch.Step.Number; number <= m.After {
			if err := e.copies.Wait(e.events[number%depth]); err != nil {
				return err
			}
		}
	}
	if err := e.memory.CopyPage(e.copies, m.From, m.To); err != nil {
		return err
	}
	return e.copies.Record(done)
}

// finishMoves ends the moves that have been copied. One stream copies all pages, so moves finish in the order in
// which they began.
func (e *Engine) finishMoves() error {
	for len(e.moves) > 0 {
		m := e.moves[0]
		if done, err := m.done.Done(); err != nil || !done {
			return err
		}
		e.moves = slices.Delete(e.moves, 0, 1)
		e.sched.FinishMove(m.Move)
		if err := m.done.Destroy(); err != nil {
			return err
		}
	}
	return nil
}
