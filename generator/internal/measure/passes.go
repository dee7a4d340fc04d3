package measure

import "reel.internal/reel/generator/internal/config"

// Passes selects the passes to measure. Decode and Prefill are lists such as "1-4,8".
type Passes struct {
	Decode  string // batch sizes
	Prefill string // prompt lengths in tokens
	Context int    // tokens that each row of a decode pass attends to
	// Served has the passes run in memory for as many rows, sequences and positions as a generator has that serves, after
	// one of its longest steps. Otherwise there is memory for what they need.
	Served bool
}

// pass is one pass to measure.
type pass struct {
	phase         string // decode or prefill
	rows, context int    // tokens
}

// sequences returns how many sequences the pass has. Each samples one token.
func (p pass) sequences() int {
	if p.phase == "decode" {
		return p.rows
	}
	return 1
}

// passes returns the passes that o selects and the plan can hold. Errors: [config.ErrConfig].
func (o *Passes) passes(chunk, batch, context int) (all []pass, err error) {
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
	for _, n := range decode {
		if n <= batch {
			all = append(all, pass{"decode", n, min(o.Context, context)})
		}
	}
	for _, n := range prefill {
		if n <= min(chunk, context) {
			all = append(all, pass{"prefill", n, n})
		}
	}
	if len(all) == 0 {
		return nil, config.Refuse(config.ErrConfig,
			"no pass of --decode %s and --prefill %s fits a batch of %d and a step of %d tokens",
			o.Decode, o.Prefill, batch, chunk)
	}
	return all, nil
}
