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
	if t, lacks := s.lacks(control); lacks {
		return nil, protocol.Errorf(protocol.CodeFormatUnavailable,
			"leave tool_choice and tool_name out, so that the model may call",
			"a call cannot be required: its token %d has no weights in this model", t)
	}
	return s.follow(ctx, user, toolCalls, text, control...)
}

// CompileAfter is [Service.Compile] for a format after reasoning, which format/src/answer.rs describes. The completion
// may have these control tokens too.
func (s *Service) CompileAfter(ctx context.Context, user engine.User, f protocol.Format, think string,
	control []int32) (engine.Format, error) {
	if t, lacks := s.lacks(control); lacks {
		return nil, protocol.Errorf(protocol.CodeFormatUnavailable,
			"leave the format out, or send a prompt instead of messages",
			"no format can follow this model's reasoning: its token %d has no weights", t)
	}
	text, err := answerOf(f, think)
	if err != nil {
		return nil, refused(err.Error())
	}
	return s.follow(ctx, user, answer, text, control...)
}

// lacks returns the first of some tokens that the model has no row for.
func (s *Service) lacks(tokens []int32) (token int32, lacks bool) {
	i := slices.IndexFunc(tokens, func(t int32) bool { return int(t) >= s.tokens })
	if i < 0 {
		return 0, false
	}
	return tokens[i], true
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
