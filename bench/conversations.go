package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// ConversationOptions describe the lines that [Conversations] makes.
type ConversationOptions struct {
	Requests int     // lines
	Turns    float64 // mean number of turns of a conversation, at least 1
	Context  int     // tokens of a prompt and its answer at most
	Scale    float64 // of all lengths; 1 is that of people's conversations
	Users    int     // names that take turns as senders of conversations; 0: no names
	Seed     uint64
}

// A message or an answer has a log-normal number of tokens, as those of the published ShareGPT conversations nearly
// have: first prompts of 161 tokens and answers of 338 on average (Kwon et al. 2023, "Efficient Memory Management for
// Large Language Model Serving with PagedAttention", figure 11). The mean of exp(N(m, s²)) is exp(m + s²/2).
const (
	messageMean, messageSigma = 161, 1.2 // the median is 78
	answerMean, answerSigma   = 338, 1.0 // the median is 205
	shortestMessage           = 4        // tokens, before Scale
	longestMessage            = 1024     // likewise
	openConversations         = 64       // that take turns in the file
)

// conversation is one that has further turns.
type conversation struct {
	number  int
	user    string
	history int // tokens of earlier prompts and answers
	left    int // turns
}

// Conversations makes a workload like the published ShareGPT conversations: Requests lines with the lengths of prompts
// and answers, one for each turn. The prompt of a turn is the whole conversation so far with a new message; its tokens
// begin with those of the turn before. The number of turns is geometric, with a mean of Turns if the context is large.
// 64 conversations are open at a time, and a line is the next turn of a random one. A conversation that fills the
// context ends. The same options give the same lines. The error is ErrOptions.
func Conversations(o ConversationOptions) ([]Line, error) {
	if o.Requests < 1 || !(o.Turns >= 1) || o.Context < 16 || !(o.Scale > 0) || o.Users < 0 {
		return nil, fmt.Errorf("%w: %d requests of %g turns in a context of %d, scaled by %g, of %d users: "+
			"they must be at least 1, 1, 16, above 0, and 0", ErrOptions, o.Requests, o.Turns, o.Context, o.Scale, o.Users)
	}
	random := rand.New(rand.NewPCG(o.Seed, 3))
	var open []*conversation
	begun := 0
	var lines []Line
	for len(lines) < o.Requests {
		for len(open) < openConversations {
			open = append(open, o.begin(random, begun))
			begun++
		}
		at := random.IntN(len(open))
		lines = append(lines, o.turn(random, open[at]))
		if open[at].left == 0 {
			open[at] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return lines, nil
}

// begin returns the number-th conversation, before its first turn.
func (o *ConversationOptions) begin(random *rand.Rand, number int) *conversation {
	c := &conversation{number: number + 1, left: 1}
	if o.Users > 0 {
		c.user = fmt.Sprintf("user-%d", number%o.Users+1)
	}
	for random.Float64() > 1/o.Turns {
		c.left++
	}
	return c
}

// turn draws the next turn of c. In a context that is nearly full, message and answer become shorter, and the
// conversation ends if it has no room for the next turn.
func (o *ConversationOptions) turn(random *rand.Rand, c *conversation) Line {
	message, answer := o.tokens(random, messageMean, messageSigma), o.tokens(random, answerMean, answerSigma)
	message = min(message, max(1, (o.Context-c.history)/2))
	answer = min(answer, max(1, o.Context-c.history-message))
	l := Line{PromptTokens: c.history + message, OutputTokens: answer, Conversation: c.number, User: c.user}
	c.history += message + answer
	if c.left--; c.history > o.Context*3/4 {
		c.left = 0
	}
	return l
}

// tokens draws a length.
func (o *ConversationOptions) tokens(random *rand.Rand, mean, sigma float64) int {
	n := math.Exp(math.Log(mean) - sigma*sigma/2 + sigma*random.NormFloat64())
	return max(1, int(math.Round(o.Scale*min(longestMessage, max(shortestMessage, n)))))
}

// WriteLines writes lines as JSONL, which [ReadLines] reads.
func WriteLines(w io.Writer, lines []Line) error {
	e := json.NewEncoder(w)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// conversationTokens returns the first n prompt tokens of a conversation: those of its later turns begin with them.
func conversationTokens(seed uint64, number, n, vocab int) []int32 {
	return prompt(rand.New(rand.NewPCG(seed, 1<<32+uint64(number))), n, vocab)
}
