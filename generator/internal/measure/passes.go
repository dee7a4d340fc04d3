package measure

import "reel.internal/reel/generator/internal/config"

// Passes selects the passes to measure. Decode and Prefill are lists such as "1-4,8".
type Passes struct {
	Decode  string // batch sizes
	Prefill string // tokens
	Context int    // tokens that each row of a decode pass attends to
	// PromptTokens is the length of the prompts of a prefill pass, of which the last may be shorter; 0: it has one.
	PromptTokens int
	// Served has the passes run in memory for as many rows, sequences and positions as a generator has that serves, after
	// one of its longest steps. Otherwise there is memory for what they need.
	Served bool
}

// pass is one pass to measure.
type pass struct {
	phase         string // decode or prefill
	rows, context int    // tokens; context is those that a sequence's last row attends to
}

// sequences returns how many sequences the pass has. Each samples one token.
func (p pass) sequences() int {
	if p.phase == "decode" {
		return p.rows
	}
	return (p.rows + p.context - 1) / p.context
}

// passes returns the passes that o selects and the plan can hold: steps of chunk rows, batch sequences, of them prompts
// that are being read, and context tokens. Errors: [config.ErrConfig].
func (o *Passes) passes(chunk, batch, prompts, context int) (all []pass, err error) {
	decode, err := config.ParseCounts(o.Decode)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--decode: %w", err)
	}
	prefill, err := config.ParseCounts(o.Prefill)
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "--prefill: %w", err)
	}
	if o.Context < 1 {
		return nil, config.Refuse(config.ErrConfig, "--context %d: it must be at least 1", o.Context)
	}
	if o.PromptTokens < 0 {
		return nil, config.Refuse(config.ErrConfig, "--prompt-tokens %d: it can't be negative", o.PromptTokens)
	}
	for _, n := range decode {
		if n <= batch {
			all = append(all, pass{"decode", n, min(o.Context, context)})
		}
	}
	for _, n := range prefill {
		p := pass{"prefill", n, n}
		if o.PromptTokens > 0 {
			p.context = min(n, o.PromptTokens)
		}
		if n <= chunk && p.context <= context && p.sequences() <= prompts {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, config.Refuse(config.ErrConfig,
			"no pass of --decode %s and --prefill %s fits a batch of %d and a step of %d tokens of %d prompts",
			o.Decode, o.Prefill, batch, chunk, prompts)
	}
	return all, nil
}
