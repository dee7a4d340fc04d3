package main

import (
	"fmt"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// defaultTokens is the length that reel asks for unless --max-tokens is given. The
// protocol's own default is for programs, which read the finish reason.
const defaultTokens = 4096

// limited returns r with a length that the generator accepts: --max-tokens, or
// defaultTokens, but at most the context. No round trip is needed, because the generator
// ends an answer when prompt and answer fill the context.
func (a *app) limited(r client.Request, l client.Limits) client.Request {
	switch {
	case l.Context < 1:
	case r.MaxTokens == nil:
		r.MaxTokens = new(min(defaultTokens, l.Context))
	case *r.MaxTokens > l.Context:
		a.tellClamped(*r.MaxTokens, l.Context)
		r.MaxTokens = new(l.Context)
	}
	return r
}

// tellClamped says on a terminal, once for each value, that --max-tokens is reduced.
func (a *app) tellClamped(asked, context int) {
	if a.clamped == asked {
		return
	}
	a.clamped = asked
	if messages := stderr(); messages.terminal {
		fmt.Fprintf(messages, "reel: --max-tokens %d is more than the context: asking for %d\n", asked, context)
	}
}

// tellCut says on a terminal that a limit ended the answer to r, which limited returned.
// next is the advice for a context that is full, or "".
func (a *app) tellCut(r client.Request, done client.Done, l client.Limits, next string) {
	messages := stderr()
	if done.FinishReason != protocol.FinishLength || !messages.terminal {
		return
	}
	limit := fmt.Sprintf("the context of %d tokens is full%s", l.Context, next)
	if n := done.Usage.CompletionTokens; r.MaxTokens != nil && n >= *r.MaxTokens {
		limit = "--max-tokens"
		if a.request.MaxTokens == nil {
			limit = "the default of --max-tokens"
		}
	}
	fmt.Fprintf(messages, "reel: stopped at %d tokens (%s)\n", done.Usage.CompletionTokens, limit)
}
