package engine

import (
	"errors"
	"fmt"
)

// ErrBudget reports a graph budget that needs a restart.
var ErrBudget = errors.New("engine: not without a restart")

// Resize changes how many graphs may exist and how many bytes they may take; 0 bytes means the budget of the
// start. Memory was planned at the start, so there cannot be more. The error is ErrBudget. Resize is safe from any
// goroutine.
func (e *Engine) Resize(maxGraphs int, bytes int64) error {
	switch {
	case e.opts.NoRoller:
		return fmt.Errorf("%w: with --roller off the graphs stay those of the start", ErrBudget)
	case bytes > e.opts.GraphMemory:
		return fmt.Errorf("%w: %d bytes were set aside for graphs at the start, %d are asked for",
			ErrBudget, e.opts.GraphMemory, bytes)
	case bytes == 0:
		bytes = e.opts.GraphMemory
	}
	e.pool.Resize(maxGraphs, bytes)
	return nil
}
