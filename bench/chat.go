package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// ChatOptions are the options of [MeasureChat].
type ChatOptions struct {
	Conversations int // measured, at least 1, after one warm-up
	Turns         int // of each conversation, at least 1
	Words         int // of each message, at least 1
	MaxTokens     int // of each answer, at least 1
	System        int // words of a system message that all conversations share; 0: none
	// Pause is the time between the end of an answer and the next message: a person reads. The
	// message alone comes after a pause too, since a processor that has slept is slower.
	Pause time.Duration
	Seed  uint64 // of the words
	// Mark is part of the first message of each conversation, and of the system message. With
	// another mark than before no server has any of these conversations cached.
	Mark     string
	Progress Progress
}

// Chat is the result of [MeasureChat].
type Chat struct {
	Head
	Conversations int       `json:"conversations"`
	Turns         int       `json:"turns"`
	Words         int       `json:"words"`
	MaxTokens     int       `json:"max_tokens"`
	System        int       `json:"system"`
	PauseMS       float64   `json:"pause_ms"`
	AsText        bool      `json:"as_text,omitempty"` // a conversation was one text: the model has no chat template
	Rows          []ChatRow `json:"rows"`              // by target, then by turn
}

// ChatRow is the result for one turn, over all conversations.
type ChatRow struct {
	Target       string  `json:"target"`
	Turn         int     `json:"turn"`          // from 1
	PromptTokens float64 `json:"prompt_tokens"` // mean, as the server counts them
	CachedTokens float64 `json:"cached_tokens"` // mean of those that the server had cached
	TTFT         Summary `json:"ttft_ms"`       // from the message to the answer's first token
	// Alone is the TTFT of the turn's message as a conversation of its own, without a cache
	// where the server knows that.
	Alone Summary   `json:"alone_ms"`
	Ratio float64   `json:"ratio"` // median over the conversations of a turn's TTFT by that alone
	Runs  []float64 `json:"runs"`  // TTFT of each conversation, in milliseconds

	ratios                    []float64
	ttft, alone               *Recorder
	promptTokens, cachedToken int
}

// ChatTarget answers conversations.
type ChatTarget interface {
	Name() string
	// Answer answers messages greedily with maxTokens tokens and returns the answer's text.
	// alone: the messages are not part of a conversation, and leave nothing in a cache. It
	// calls arrived as [Target.Complete] does.
	Answer(ctx context.Context, messages []client.Message, maxTokens int, alone bool, arrived func()) (
		text string, ended Ended, err error)
}

// reelChat is a Reel generator that uses its prefix cache in one way.
type reelChat struct {
	name, cache string
	chat        bool // the model has a chat template
	generator   Generator
}

// NewReelChat returns two targets for one generator: "reel", and "reel, cache off". Without
// chat, a conversation is sent as one text, a message a paragraph.
func NewReelChat(g Generator, chat bool) []ChatTarget {
	return []ChatTarget{
		&reelChat{"reel", protocol.CacheOn, chat, g}, &reelChat{"reel, cache off", protocol.CacheOff, chat, g},
	}
}

// Name returns the target's name.
func (r *reelChat) Name() string { return r.name }

// Answer answers a conversation.
func (r *reelChat) Answer(ctx context.Context, messages []client.Message, maxTokens int, alone bool,
	arrived func()) (string, Ended, error) {
	var done client.Done
	request := client.Request{
		MaxTokens: &maxTokens, Temperature: new(0.0), IgnoreEOS: true, Cache: r.cache, Done: &done,
	}
	if alone {
		request.Cache = protocol.CacheOff
	}
	if request.Messages = messages; !r.chat {
		request.Messages, request.Prompt = nil, asText(messages)
	}
	var text strings.Builder
	tokens := 0
	for t, err := range r.generator.Generate(ctx, request) {
		if err != nil {
			return "", Ended{}, err
		}
		arrived()
		text.WriteString(t.Text)
		tokens++
	}
	return text.String(), Ended{PromptTokens: done.Usage.PromptTokens, CachedTokens: done.Usage.CachedTokens,
		Tokens: tokens, Reason: done.FinishReason, Graphs: done.Graphs}, nil
}

// asText returns a conversation as one text.
func asText(messages []client.Message) string {
	var text strings.Builder
	for _, m := range messages {
		text.WriteString(m.Content + "\n\n")
	}
	return text.String()
}

// MeasureChat holds conversations with each target, one at a time, and measures the TTFT of
// each turn. A turn sends the whole conversation so far, with the target's own answers.
// Targets get the same messages, and each is first equally often. Errors are ErrOptions and
// those of the targets.
func MeasureChat(ctx context.Context, targets []ChatTarget, o ChatOptions) (*Chat, error) {
	if o.Conversations < 1 || o.Turns < 1 || o.Words < 1 || o.MaxTokens < 1 || o.System < 0 || o.Pause < 0 {
		return nil, fmt.Errorf("%w: conversations, turns, words and tokens must be 1 or more", ErrOptions)
	}
	m := chats{ChatOptions: o, targets: targets, rows: make([][]*ChatRow, len(targets))}
	for i, t := range targets {
		for turn := range o.Turns {
			m.rows[i] = append(m.rows[i],
				&ChatRow{Target: t.Name(), Turn: turn + 1, ttft: NewRecorder(), alone: NewRecorder()})
		}
	}
	for n := range o.Conversations + 1 {
		if err := m.conversation(ctx, n); err != nil {
			return nil, err
		}
	}
	return m.report(), nil
}

// chats is the state of a measurement.
type chats struct {
	ChatOptions
	targets   []ChatTarget
	rows      [][]*ChatRow // by target and turn
	differing int          // answers that differ between the ways to use the cache
	done      int
}

// conversation holds the n-th conversation with each target. The first one warms up.
func (m *chats) conversation(ctx context.Context, n int) error {
	var answers [][]string
	for k := range m.targets {
		i := (n + k) % len(m.targets)
		random := rand.New(rand.NewPCG(m.Seed, uint64(n)))
		said, err := m.hold(ctx, i, random, fmt.Sprintf("%d-%s", n, m.Mark), n > 0)
		if err != nil {
			return fmt.Errorf("%s: %w", m.targets[i].Name(), err)
		}
		if _, is := m.targets[i].(*reelChat); is {
			answers = append(answers, said)
		}
	}
	for turn := 0; len(answers) == 2 && turn < m.Turns; turn++ {
		if answers[0][turn] != answers[1][turn] {
			m.differing++
		}
	}
	return nil
}

// hold holds one conversation with a target, and returns the answers.
func (m *chats) hold(ctx context.Context, target int, random *rand.Rand, mark string, counts bool) ([]string, error) {
	var messages []client.Message
	var answers []string
	if m.System > 0 {
		shared := rand.New(rand.NewPCG(m.Seed, math.MaxUint64))
		messages = append(messages, client.Message{Role: "system", Content: m.Mark + " " + words(shared, m.System)})
	}
	for turn, row := range m.rows[target] {
		said := client.Message{Role: "user", Content: words(random, m.Words)}
		lone := said
		if turn == 0 { // a peer may have cached the very message otherwise
			said.Content, lone.Content = mark+"a "+said.Content, mark+"b "+said.Content
		}
		messages = append(messages, said)
		text, together, err := m.answer(ctx, target, messages, false)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", turn+1, err)
		}
		if err := rest(ctx, m.Pause); err != nil {
			return nil, err
		}
		_, alone, err := m.answer(ctx, target, []client.Message{lone}, true)
		if err != nil {
			return nil, fmt.Errorf("the message of turn %d alone: %w", turn+1, err)
		}
		if counts {
			row.add(together, alone)
		}
		messages = append(messages, client.Message{Role: "assistant", Content: text})
		answers = append(answers, text)
		m.step()
		if err := rest(ctx, m.Pause); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// answer asks a target. Alone, one token is enough.
func (m *chats) answer(ctx context.Context, target int, messages []client.Message, alone bool) (
	text string, c Completion, err error) {
	tokens := m.MaxTokens
	if alone {
		tokens = 1
	}
	due := time.Now()
	text, c.Ended, c.Err = m.targets[target].Answer(ctx, messages, tokens, alone,
		func() { c.Arrivals = append(c.Arrivals, time.Since(due)) })
	c.End = time.Since(due)
	var reported *client.Error
	if errors.As(c.Err, &reported) && reported.Code == protocol.CodePromptTooLong {
		return "", c, fmt.Errorf("%w: the conversation does not fit the context: lower --turns, --words or "+
			"--max-tokens: %w", ErrOptions, c.Err)
	}
	return text, c, c.short(Work{MaxTokens: tokens})
}

func (m *chats) step() {
	m.done++
	if m.Progress != nil {
		m.Progress(m.done, (m.Conversations+1)*len(m.targets)*m.Turns)
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// report returns the result.
func (m *chats) report() *Chat {
	r := &Chat{Head: Head{Kind: "chat"}, Conversations: m.Conversations, Turns: m.Turns, Words: m.Words,
		MaxTokens: m.MaxTokens, System: m.System, PauseMS: milliseconds(m.Pause)}
	for i, rows := range m.rows {
		for _, row := range rows {
			r.Rows = append(r.Rows, row.closed())
		}
		switch t := m.targets[i].(type) {
		case *peer:
			r.notePeers([]Target{t})
		case *reelChat:
			r.AsText = !t.chat
		}
	}
	if m.differing > 0 {
		r.warn(fmt.Sprintf("%d answers differ between cache on and off: the cache changes tokens, which is a fault",
			m.differing))
	}
	return r
}

// add adds a turn of a conversation.
func (r *ChatRow) add(together, alone Completion) {
	r.ttft.Add(together.TTFT())
	r.alone.Add(alone.TTFT())
	r.Runs = append(r.Runs, milliseconds(together.TTFT()))
	r.ratios = append(r.ratios, float64(together.TTFT())/float64(max(1, alone.TTFT())))
	r.promptTokens += together.PromptTokens
	r.cachedToken += together.CachedTokens
}

// closed returns the row with its summaries.
func (r *ChatRow) closed() ChatRow {
	n := float64(len(r.Runs))
	return ChatRow{Target: r.Target, Turn: r.Turn, Runs: r.Runs, TTFT: r.ttft.Summary(), Alone: r.alone.Summary(),
		Ratio: median(r.ratios), PromptTokens: float64(r.promptTokens) / n, CachedTokens: float64(r.cachedToken) / n}
}

// vocabulary has words that most tokenizers know as one token each.
var vocabulary = strings.Fields("the of and to in is you that it he was for on are as with his they at be this have " +
	"from or one had by word but not what all were we when your can said there use an each which she do how their " +
	"if will up other about out many then them these so some her would make like him into time has look two more")

// words returns n random words.
func words(random *rand.Rand, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = vocabulary[random.IntN(len(vocabulary))]
	}
	return strings.Join(all, " ")
}
