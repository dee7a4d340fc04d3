package plan

import (
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
)

// Divide returns c as the GPUs that o names share it. The error says that they cannot.
func Divide(c model.Config, o config.Options) (model.Config, error) {
	n := o.Ranks()
	if n == 1 {
		return c, nil
	}
	if err := c.CheckRanks(n); err != nil {
		return c, config.Refuse(config.ErrConfig, "--gpus: %w", err)
	}
	c.Ranks = n
	return c, nil
}

// ranks returns how many GPUs share the model. A plan is that of each of them; on the host it is that of all simulated
// ones, which share its memory.
func (p Planner) ranks() int64 { return int64(max(1, p.Config.Ranks)) }

// together returns how many ranks share the memory that is planned.
func (p Planner) together() int64 {
	if p.Profile.Packed {
		return 1
	}
	return p.ranks()
}

// ownHead returns the bytes of a rank's part of a tied head. One GPU alone uses the embedding.
func (p Planner) ownHead() int64 {
	if c := p.Config; c.TiedHead && c.Ranks > 1 && c.Embedding == nil && p.Profile.Packed {
		embedding := c.Tensors()[0]
		return kernels.PackedBytes(p.format(embedding), kernels.PartOf(c.Vocab, c.Ranks), c.Hidden)
	}
	return 0
}
