package bench

import (
	"fmt"
	"slices"
	"time"
)

// minPieces is the least number of pieces from which buffering can be recognised.
const minPieces = 8

// burstGap is an upper bound on the gaps inside a burst. It is shorter than a step that
// others' prompts delay.
const burstGap = 200 * time.Microsecond

// buffered reports whether a completion came in bursts instead of token by token: in
// pieces of several tokens, all at its end, or with half of its tokens right after the
// previous one, without those that had been guessed.
func (c *Completion) buffered() bool {
	n := len(c.Arrivals)
	if c.Tokens >= minPieces && 3*n <= 2*c.Tokens {
		return true
	}
	if n < minPieces {
		return false
	}
	each := c.span() / time.Duration(n-1)
	gaps := slices.Sorted(slices.Values(c.Gaps())) // the shortest are those before guessed tokens
	gaps = gaps[min(max(0, c.Accepted), len(gaps)):]
	if len(gaps) == 0 {
		return false
	}
	// The median, because on a busy machine even tokens that come together have a pause between them.
	median := gaps[len(gaps)/2]
	if median < 100*time.Microsecond && 50*median*time.Duration(len(gaps)) < c.End {
		return true // no model is that much faster per token than at its prompt
	}
	behind := 0
	for _, gap := range gaps {
		if gap < min(each/10, burstGap) {
			behind++
		}
	}
	return 2*behind >= len(gaps)
}

// bursts counts a target's completions that came in bursts.
type bursts struct{ buffered, all int }

func (b *bursts) add(c *Completion) {
	if c.Err != nil || c.Tokens < minPieces {
		return
	}
	b.all++
	if c.buffered() {
		b.buffered++
	}
}

// verdict returns a warning if most of a server's completions came in bursts.
func (b *bursts) verdict(name string) string {
	if 2*b.buffered <= b.all {
		return ""
	}
	return fmt.Sprintf("%s buffers its tokens, or its machine is too busy to send them singly: "+
		"%d of %d completions came in bursts, so TTFT and ITL are those of the bursts",
		name, b.buffered, b.all)
}
