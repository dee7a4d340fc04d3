package assembly

import (
	"fmt"

	"reel.internal/reel/generator/internal/model"
)

// remarks returns lines about what a model does not do, or does in a way of its own, in the context that is served.
func (s source) remarks() (lines []string) {
	c := s.config
	if s.ignored > 0 {
		lines = append(lines, fmt.Sprintf("%d tensors of the checkpoint are for images and not used: text alone "+
			"is served", s.ignored))
	}
	if c.QueryScale != 0 && c.ContextReason != "" {
		lines = append(lines, fmt.Sprintf("the context is at most %d tokens: %s", c.RoPE.Original, c.ContextReason))
	}
	if c.RoPE.Kind != model.LongRoPE || c.LongFactors == nil {
		return lines
	}
	if c.Context > c.RoPE.Original {
		return append(lines, fmt.Sprintf("RoPE has the long factors, as the context is %d tokens: --max-seq-len %d "+
			"serves the short ones, for texts of at most that length", c.Context, c.RoPE.Original))
	}
	return append(lines, fmt.Sprintf("RoPE has the short factors, as the context is %d tokens", c.Context))
}
