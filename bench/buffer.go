package bench

import (
	"fmt"
	"time"
)

// enoughPieces is how many tokens tell whether a server buffers.
const enoughPieces = 8

// hardBehind is more than what lies between two tokens of one burst, and less
// than what a step takes that others' prompts hold up.
const hardBehind = 200 * time.Microsecond

// buffered tells whether a completion came in bursts instead of token by token:
// in pieces of several tokens, all of it at its end, or with half of its tokens
// hard behind the one before.
func (c *Completion) buffered() bool {
	n := len(c.Arrivals)
	if c.Tokens >= enoughPieces && 3*n <= 2*c.Tokens {
		return true
	}
	if n < enoughPieces {
		return false
	}
	each := c.span() / time.Duration(n-1)
	if each < 100*time.Microsecond && 50*c.span() < c.End {
		return true // no model is that much faster at its tokens than at its prompt
	}
	behind := 0
	for _, gap := range c.Gaps() {
		if gap < min(each/10, hardBehind) {
			behind++
		}
	}
	return 2*behind >= n-1
}

// bursts counts a target's completions that came in bursts.
type bursts struct{ buffered, all int }

func (b *bursts) add(c *Completion) {
	if c.Err != nil || c.Tokens < enoughPieces {
		return
	}
	b.all++
	if c.buffered() {
		b.buffered++
	}
}

// verdict says that a server buffers, where most of its completions came so.
func (b *bursts) verdict(name string) string {
	if 2*b.buffered <= b.all {
		return ""
	}
	return fmt.Sprintf("%s buffers its tokens, or its machine is too busy to send them singly: %d of %d completions came in bursts, so TTFT and ITL are those of the bursts",
		name, b.buffered, b.all)
}
