package gateway

import (
	"strings"
	"sync"
	"unicode/utf8"

	"reel.internal/reel/client"
)

// textLogprobs are log-probabilities in the form of completions. Offsets count the characters of the
// choice's text before each token.
type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

// add adds a token that has log-probabilities and comes after offset characters.
func (l *textLogprobs) add(t *client.Token, offset int) {
	top, drawn := map[string]float64{}, false
	for _, other := range t.Top {
		drawn = drawn || other.Token == t.Token
		if _, known := top[other.Text]; !known { // the first is the most probable
			top[other.Text] = finite(other.Logprob)
		}
	}
	if !drawn {
		top[t.Text] = finite(*t.Logprob) // OpenAI's alternatives have the token itself besides
	}
	l.Tokens = append(l.Tokens, t.Text)
	l.Logprobs = append(l.Logprobs, finite(*t.Logprob))
	l.Top = append(l.Top, top)
	l.Offsets = append(l.Offsets, offset)
}

// textDelta is what a chunk adds to a completion.
type textDelta struct {
	Index    int           `json:"index"`
	Text     string        `json:"text"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// textStream sends completions in chunks.
type textStream struct {
	events
	offsets []int // by choice: characters sent
}

func (c *textStream) token(choice int, t *client.Token) error {
	d := textDelta{Index: choice, Text: t.Text}
	if t.Logprob != nil {
		d.Logprobs = &textLogprobs{}
		d.Logprobs.add(t, c.offsets[choice])
	}
	c.offsets[choice] += utf8.RuneCountInString(t.Text)
	if t.Text == "" && d.Logprobs == nil {
		return nil
	}
	return c.send(chunk[textDelta]{c.envelope, []textDelta{d}, c.noUsage()})
}

func (c *textStream) done(choice int, d *client.Done) error {
	c.count(choice, d)
	return c.send(chunk[textDelta]{c.envelope, []textDelta{{Index: choice, Finish: &d.FinishReason}}, c.noUsage()})
}

// textAnswer collects completions.
type textAnswer struct {
	envelope
	Choices []textChoice `json:"choices"`
	Usage   usage        `json:"usage"`

	choices int // of each prompt
	mu      sync.Mutex
}

type textChoice struct {
	Index    int           `json:"index"`
	Text     string        `json:"text"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`

	text   strings.Builder
	offset int // characters of text
}

func (c *textAnswer) token(choice int, t *client.Token) error {
	to := &c.Choices[choice]
	if t.Logprob != nil {
		if to.Logprobs == nil {
			to.Logprobs = &textLogprobs{}
		}
		to.Logprobs.add(t, to.offset)
	}
	to.text.WriteString(t.Text)
	to.offset += utf8.RuneCountInString(t.Text)
	return nil
}

func (c *textAnswer) done(choice int, d *client.Done) error {
	c.Choices[choice].Finish = d.FinishReason
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Usage.add(d, choice%c.choices == 0)
	return nil
}

func (c *textAnswer) finish() {
	for i := range c.Choices {
		c.Choices[i].Index, c.Choices[i].Text = i, c.Choices[i].text.String()
	}
}
