package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"reel.internal/reel/client"
)

// Lengths is a range of token counts, both ends included.
type Lengths struct{ Low, High int }

// ParseLengths parses "128", or "16-256" for a uniform distribution.
func ParseLengths(text string) (Lengths, error) {
	low, high, ranged := strings.Cut(text, "-")
	l := Lengths{}
	var err error
	if l.Low, err = strconv.Atoi(low); err == nil {
		l.High = l.Low
		if ranged {
			l.High, err = strconv.Atoi(high)
		}
	}
	if err != nil || l.Low < 1 || l.High < l.Low {
		return l, fmt.Errorf("%w: %q is neither a length such as 128 nor a range such as 16-256", ErrOptions, text)
	}
	return l, nil
}

// String returns the form that ParseLengths reads.
func (l Lengths) String() string {
	if l.Low == l.High {
		return strconv.Itoa(l.Low)
	}
	return fmt.Sprintf("%d-%d", l.Low, l.High)
}

func (l Lengths) draw(random *rand.Rand) int { return l.Low + random.IntN(l.High-l.Low+1) }

// Workload describes the completions of a load.
type Workload struct {
	Prompt, Output Lengths // uniformly distributed lengths, random tokens
	Lines          []Line  // used instead, cyclically, unless empty
	Cache          string  // as in Work
}

// Line is a line of a workload file. Exactly one of the first three fields is given.
type Line struct {
	Prompt       string  `json:"prompt,omitempty"`
	Tokens       []int32 `json:"tokens,omitempty"`
	PromptTokens int     `json:"prompt_tokens,omitempty"` // number of random tokens
	OutputTokens int     `json:"output_tokens"`
	// Conversation, if it is not 0, has the random tokens be the first of an endless text of that number.
	Conversation int    `json:"conversation,omitempty"`
	User         string `json:"user,omitempty"` // the name of the sender; empty: none
}

// ReadLines reads a JSONL file of Lines. Errors are those of the file, and ErrOptions with
// the number of the invalid line.
func ReadLines(path string) ([]Line, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []Line
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for n := 1; s.Scan(); n++ {
		if strings.TrimSpace(s.Text()) == "" {
			continue
		}
		var l Line
		err := json.Unmarshal(s.Bytes(), &l)
		if err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s, line %d: %w", ErrOptions, path, n, err)
		}
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: %s has no lines", ErrOptions, path)
	}
	return lines, nil
}

func (l *Line) check() error {
	given := 0
	for _, is := range []bool{l.Prompt != "", len(l.Tokens) > 0, l.PromptTokens > 0} {
		if is {
			given++
		}
	}
	if given != 1 || l.OutputTokens < 1 {
		return fmt.Errorf(`it needs one of "prompt", "tokens" and "prompt_tokens", and "output_tokens" of 1 or more`)
	}
	return nil
}

// lengths describes the lengths of prompts and completions: ranges, or for lines ranges with their means.
func (w *Workload) lengths() (prompts, outputs string) {
	if len(w.Lines) == 0 {
		return w.Prompt.String(), w.Output.String()
	}
	var p, o counts
	for _, l := range w.Lines {
		p.add(l.PromptTokens + len(l.Tokens))
		o.add(l.OutputTokens)
	}
	if p.low == 0 {
		return "file", o.String() // the tokens of a text are unknown
	}
	return p.String(), o.String()
}

// counts are the extremes and the mean of numbers.
type counts struct{ low, high, sum, n int }

func (c *counts) add(n int) {
	if c.n == 0 || n < c.low {
		c.low = n
	}
	c.high, c.sum, c.n = max(c.high, n), c.sum+n, c.n+1
}

// String returns the range and the mean.
func (c *counts) String() string {
	return fmt.Sprintf("%d-%d (mean %.0f)", c.low, c.high, float64(c.sum)/float64(c.n))
}

// check refuses lengths that exceed the context. It does not know the number of tokens of
// a text.
func (w *Workload) check(limits client.Limits) error {
	longest := w.Prompt.High + w.Output.High
	for _, l := range w.Lines {
		longest = max(longest, l.PromptTokens+len(l.Tokens)+l.OutputTokens)
	}
	if longest > limits.Context {
		return fmt.Errorf("%w: a prompt and its completion of up to %d tokens: the context holds %d",
			ErrOptions, longest, limits.Context)
	}
	return nil
}

// workSource draws completions from a workload. It is safe for concurrent use.
type workSource struct {
	Workload
	vocab  int
	seed   uint64
	mu     sync.Mutex
	random *rand.Rand
	drawn  int
}

func newWorkSource(w Workload, vocab int, seed uint64) *workSource {
	return &workSource{Workload: w, vocab: vocab, seed: seed, random: rand.New(rand.NewPCG(seed, 1))}
}

func (w *workSource) next() Work {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drawn++
	if len(w.Lines) == 0 {
		return Work{Tokens: prompt(w.random, w.Prompt.draw(w.random), w.vocab), MaxTokens: w.Output.draw(w.random),
			Cache: w.Cache}
	}
	l := w.Lines[(w.drawn-1)%len(w.Lines)]
	work := Work{Text: l.Prompt, Tokens: l.Tokens, MaxTokens: l.OutputTokens, Cache: w.Cache, User: l.User}
	switch {
	case l.PromptTokens > 0 && l.Conversation > 0:
		work.Tokens = conversationTokens(w.seed, l.Conversation, l.PromptTokens, w.vocab)
	case l.PromptTokens > 0:
		work.Tokens = prompt(w.random, l.PromptTokens, w.vocab)
	}
	return work
}

// SLO has the bounds that a completion has to keep to count as good; 0 means no bound.
type SLO struct {
	TTFT, ITL, TPOT, E2E time.Duration // ITL bounds every gap
}

// onAverage returns the bounds with that of every gap as one of their mean, TPOT.
func (s SLO) onAverage() SLO {
	if s.ITL > 0 && (s.TPOT == 0 || s.ITL < s.TPOT) {
		s.TPOT = s.ITL
	}
	s.ITL = 0
	return s
}

// ParseSLO parses bounds such as "ttft=200ms,itl=50ms"; tpot and e2e are possible too.
func ParseSLO(text string) (SLO, error) {
	var s SLO
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		bounds := map[string]*time.Duration{"ttft": &s.TTFT, "itl": &s.ITL, "tpot": &s.TPOT, "e2e": &s.E2E}
		bound := bounds[name]
		d, err := time.ParseDuration(value)
		if bound == nil || err != nil || d <= 0 {
			return s, fmt.Errorf("%w: %q is no bound such as ttft=200ms; itl, tpot and e2e are the others",
				ErrOptions, part)
		}
		*bound = d
	}
	return s, nil
}

// String returns the form that ParseSLO reads.
func (s SLO) String() string {
	var parts []string
	for _, b := range []struct {
		name  string
		bound time.Duration
	}{{"ttft", s.TTFT}, {"itl", s.ITL}, {"tpot", s.TPOT}, {"e2e", s.E2E}} {
		if b.bound > 0 {
			parts = append(parts, b.name+"="+b.bound.String())
		}
	}
	return strings.Join(parts, ",")
}

// met reports whether c kept the bounds. A failed completion did not.
func (s SLO) met(c *Completion) bool {
	within := func(d, bound time.Duration) bool { return bound == 0 || d <= bound }
	if c.Err != nil || !within(c.TTFT(), s.TTFT) || !within(c.TPOT(), s.TPOT) || !within(c.End, s.E2E) {
		return false
	}
	for _, gap := range c.Gaps() {
		if !within(gap, s.ITL) {
			return false
		}
	}
	return true
}
