package fakegen

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"reel.internal/reel/protocol"
)

// Piece is what one token completes. A request ends with tool_calls after a piece of a call.
type Piece struct {
	Text, Reasoning string
	Call            *protocol.CallPiece
}

// Answer is what a generator says to one request. A cancel ends it at any time.
type Answer struct {
	Tokens iter.Seq[Piece] // nil: none
	Pace   time.Duration   // before each token
	Ending Ending
	Error  *protocol.Error // sent for the ending Fail
}

// answer returns what to say to m.
func (g *Generator) answer(m *protocol.Generate) Answer {
	switch {
	case m.Messages != nil && !g.Chat:
		return refusal(protocol.Errorf(protocol.CodeNoChatTemplate, "send a prompt", "fake is a base model"))
	case g.Long > 0 && len(m.Messages) >= g.Long:
		return refusal(protocol.Errorf(protocol.CodePromptTooLong, "shorten it", "it is too long"))
	case g.Script.Answer != nil:
		return g.Script.Answer(m)
	}
	return Answer{Tokens: slices.Values(g.pieces(m)), Pace: g.Pace, Ending: g.Ending, Error: g.Error}
}

func refusal(e *protocol.Error) Answer { return Answer{Ending: Fail, Error: e} }

// pieces returns what to send for m without Script.Answer.
func (g *Generator) pieces(m *protocol.Generate) []Piece {
	if g.Tokens != nil {
		return g.Tokens
	}
	var list []Piece
	for _, text := range g.texts(m) {
		list = append(list, Piece{Text: text})
	}
	return list
}

// texts returns the texts of Pieces, or those that repeat the prompt.
func (g *Generator) texts(m *protocol.Generate) []string {
	pieces := g.Pieces
	if pieces == nil && m.Prompt != nil {
		pieces = strings.SplitAfter(*m.Prompt, " ")
	}
	if n := len(m.Messages); pieces == nil && n > 0 {
		pieces = strings.SplitAfter(m.Messages[n-1].Content, " ")
	}
	for _, id := range m.Tokens {
		if m.Prompt == nil && m.Messages == nil && g.Pieces == nil {
			pieces = append(pieces, fmt.Sprintf("<%d>", id))
		}
	}
	return pieces
}

// generate sends the tokens of the answer to m, then ends it as the answer says.
func (s *session) generate(m *protocol.Generate, cancelled <-chan struct{}) {
	answer := s.g.answer(m)
	done := &protocol.Done{
		ID: m.ID, FinishReason: protocol.FinishStop,
		Usage: protocol.Usage{PromptTokens: 3, CachedTokens: s.g.Cached,
			DraftedTokens: s.g.Drafted, AcceptedTokens: s.g.Drafted / 2},
		Timing: protocol.Timing{QueueMS: 1, PrefillMS: 9, TTFTMS: 10, TotalMS: 110},
		Graphs: protocol.Graphs{Eager: 5},
	}
	if m.Echo && (answer.Error == nil || answer.Tokens != nil) {
		s.send(token(m, -1, Piece{Text: "»"}))
	}
	if !s.say(m, answer, done, cancelled) {
		s.cancel(m, done)
		return
	}
	s.end(m, answer, done, cancelled)
}

// say sends the tokens of answer and counts them in done. It returns false if the request was
// cancelled meanwhile, or the connection ended.
func (s *session) say(m *protocol.Generate, answer Answer, done *protocol.Done, cancelled <-chan struct{}) bool {
	if answer.Tokens == nil {
		return true
	}
	for piece := range answer.Tokens {
		i := done.Usage.CompletionTokens
		full := s.g.Context > 0 && done.Usage.PromptTokens+i == s.g.Context
		if full || m.MaxTokens != nil && i == *m.MaxTokens {
			done.FinishReason = protocol.FinishLength
			return true
		}
		if !s.pause(answer.Pace, cancelled) {
			return false
		}
		if piece.Call != nil {
			done.FinishReason = protocol.FinishToolCalls
		}
		s.send(token(m, i, piece))
		done.Usage.CompletionTokens++
	}
	return true
}

// pause waits, and returns false if the request was cancelled or its connection ended.
func (s *session) pause(d time.Duration, cancelled <-chan struct{}) bool {
	due := elapsed
	if d > 0 {
		due = time.After(d)
	}
	select {
	case <-cancelled:
		return false
	case <-s.gone:
		return false
	case <-due:
		return true
	}
}

// elapsed is a time that has passed.
var elapsed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// cancel ends m as a generator ends a cancelled request.
func (s *session) cancel(m *protocol.Generate, done *protocol.Done) {
	if s.g.Cancelled != nil {
		s.g.Cancelled(m)
	}
	done.FinishReason = protocol.FinishCancelled
	s.send(done)
}

// end ends m as answer says.
func (s *session) end(m *protocol.Generate, answer Answer, done *protocol.Done, cancelled <-chan struct{}) {
	switch answer.Ending {
	case Mute:
	case Drop:
		s.conn.Close()
	case Fail:
		s.send(answer.Error.For(m.ID))
	case Hang:
		select {
		case <-cancelled:
		case <-s.gone:
		}
		s.cancel(m, done)
	case Finish:
		s.send(done)
	}
}

// token returns piece as token index of m, with logprobs if m asks for them.
func token(m *protocol.Generate, index int, piece Piece) *protocol.Token {
	t := &protocol.Token{
		ID: m.ID, Index: index, Token: int32(100 + index), Text: piece.Text, Reasoning: piece.Reasoning}
	if piece.Call != nil {
		t.Calls = []protocol.CallPiece{*piece.Call}
	}
	if m.Logprobs != nil {
		logprob := -0.5
		t.Logprob = &logprob
		for i := range *m.Logprobs {
			t.Top = append(t.Top, protocol.TopToken{Token: int32(i), Text: "x", Logprob: -0.5 * float64(i+1)})
		}
	}
	return t
}
