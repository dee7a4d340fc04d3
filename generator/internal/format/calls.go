package format

import (
	"context"
	"slices"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// CompileCalls is [Service.Compile] for calls of tools in the form that format/src/calls.rs describes. The completion
// may have these control tokens too.
func (s *Service) CompileCalls(ctx context.Context, user engine.User, text string,
	control []int32) (engine.Format, error) {
	for _, t := range control {
		if int(t) >= s.tokens {
			return nil, protocol.Errorf(protocol.CodeFormatUnavailable,
				"leave tool_choice and tool_name out, so that the model may call",
				"a call cannot be required: its token %d has no weights in this model", t)
		}
	}
	return s.follow(ctx, user, toolCalls, text, control...)
}

// with returns a mask that allows some tokens more.
func with(mask []uint32, tokens []int32) []uint32 {
	if len(tokens) == 0 {
		return mask
	}
	mask = slices.Clone(mask)
	for _, t := range tokens {
		mask[t/32] |= 1 << (t % 32)
	}
	return mask
}
