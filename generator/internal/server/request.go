package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// echoBytes is the number of bytes of an echoed prompt that are queued at once.
const echoBytes = 16 << 10

// request streams one completion: mailbox → text → stop strings → frames.
type request struct {
	c       *conn
	id      uint64
	user    engine.User
	model   *Model
	params  protocol.Params
	prompt  []int32
	guesses []int32 // what a drafter for measurements guesses; nil: nothing
	mailbox *mailbox
	handle  atomic.Uint64      // the engine's; 0: not submitted
	form    form               // of the completion; nil: any
	abort   context.CancelFunc // ends the compiling of the format; nil: there is none
	listed  bool               // in the outbox, whose mu guards it

	// sending guards the fields below. The goroutine that turns tokens into frames holds
	// it. It is held from the start until the prompt's echo is queued.
	sending sync.Mutex
	text    textBuffer
	guessed int       // those of them that had been guessed
	stopped bool      // a stop string or the only call was found; further tokens are dropped
	count   int       // tokens of the completion, sent or held
	last    time.Time // arrival of the last token
	frames  []byte    // encoded, not yet queued
	answer  *answer   // what was sent, to be reread; nil: it will not be

	// The current token, and the values that it points to. They are reused for the next.
	message protocol.Token
	logprob float64
	top     []protocol.TopToken
}

func newRequest(c *conn, model *Model, m *protocol.Generate, tokens []int32) *request {
	r := &request{c: c, id: m.ID, user: c.user(m.User), model: model, params: model.params(m), prompt: tokens,
		mailbox: newMailbox()}
	if len(m.Prediction) > 0 && model.Engine.Stats().Drafts.Drafter == protocol.DrafterGiven {
		r.guesses = m.Prediction // others would keep it for nothing
	}
	r.sending.Lock()
	r.text = textBuffer{
		decoder: model.NewDecoder(tokens),
		stops:   stopFilter{stops: r.params.Stop},
		emit: func(t *protocol.Token) {
			r.append(t)
			r.answer.add(t)
		},
	}
	return r
}

// submit passes the request to the engine, with its format or nil. After that stream must run.
func (r *request) submit(format engine.Format, received time.Time) *protocol.Error {
	sampling := sampling(r.params)
	handle, err := r.model.Engine.Submit(&engine.Request{
		Tokens: r.prompt, MaxTokens: r.params.MaxTokens, IgnoreEOS: r.params.IgnoreEOS,
		Sampling: sampling, Format: format, Cache: cacheModes[r.params.Cache], DraftTokens: r.params.DraftTokens,
		Prediction: r.guesses, User: r.user, Connection: r.c.number, Received: received, Sink: r,
	})
	if err != nil {
		return asError(err)
	}
	r.handle.Store(uint64(handle))
	r.c.log.Debug().Uint64("req_id", r.id).Uint64("seed", sampling.Seed).Msg("submitted")
	return nil
}

// collect begins to collect the answer, if it will be reread.
func (r *request) collect(m *protocol.Generate) {
	r.answer = r.c.server.rereads.begin(newAnswer(r.model, m, r.user, r.params, r.prompt))
}

// cancel ends the request early, also while its format is being compiled.
func (r *request) cancel() {
	if r.abort != nil {
		r.abort()
	}
	if handle := r.handle.Load(); handle != 0 {
		r.model.Engine.Cancel(engine.Handle(handle))
	}
}

// stream sends the tokens that the engine's thread left in the mailbox, then the
// request's end.
func (r *request) stream() {
	if r.params.Echo {
		r.echo()
	}
	r.sending.Unlock()
	for ended := false; !ended; {
		r.mailbox.await()
		ended = r.deliver()
	}
}

// deliver sends the mailbox's content. It reports whether the request has ended.
func (r *request) deliver() bool {
	r.sending.Lock()
	defer r.sending.Unlock()
	got := r.mailbox.take()
	r.observe(len(got.tokens))
	for i := range got.tokens {
		r.addToken(&got.tokens[i])
	}
	if got.finish != nil {
		r.finish(got.finish)
		return true
	}
	r.flush()
	return false
}

// observe tells the observer that n tokens arrived.
func (r *request) observe(n int) {
	if n == 0 || r.stopped {
		return
	}
	now := time.Now()
	if !r.last.IsZero() {
		r.c.server.opts.Observer.Tokens(n, now.Sub(r.last))
	}
	r.last = now
}

// addToken adds one token to the text; frames whose text is decided are encoded.
func (r *request) addToken(t *engine.Token) {
	if r.stopped {
		return
	}
	r.count++
	if t.Drafted {
		r.guessed++
	}
	r.message = protocol.Token{ID: r.id, Index: t.Index, Token: t.ID}
	if r.params.HasLogprobs {
		r.addLogprobs(t)
	}
	if r.text.push(&r.message) {
		r.stopped = true
		r.cancel()
	}
}

func (r *request) addLogprobs(t *engine.Token) {
	r.logprob = float64(t.Logprob)
	r.top = r.top[:0]
	for _, alt := range t.Top {
		r.top = append(r.top, protocol.TopToken{
			Token: alt.ID, Text: r.model.Tokenizer.TokenText(alt.ID), Logprob: float64(alt.Logprob),
		})
	}
	r.message.Logprob, r.message.Top = &r.logprob, r.top
}

// append encodes a message behind the frames.
func (r *request) append(msg any) {
	frames, err := protocol.AppendFrame(r.frames, msg)
	if err != nil {
		r.c.log.Error().Err(err).Uint64("req_id", r.id).Msg("cannot encode")
	}
	r.frames = frames
}

// flush queues the encoded frames.
func (r *request) flush() {
	if len(r.frames) > 0 {
		r.c.queue(r.frames)
		r.frames = r.frames[:0]
	}
}

// finish sends the held tokens, then done or error. The id is free and the end is counted
// before the client can read the last frame; the server counts the request as running until
// that frame is queued.
func (r *request) finish(f *engine.Finish) {
	failed := f.Err != nil && !r.stopped
	if !failed && !r.stopped {
		r.stopped = r.text.flush()
	}
	usage := r.usage(f)
	end, reason := r.end(f, failed, usage)
	r.c.server.opts.Observer.Request(reason, usage, f.Timing)
	r.append(end)
	r.c.forget(r.id)
	r.c.server.counts.ended(reason, failed)
	r.c.server.reread(r.answer, reason)
	r.flush()
	r.c.server.endRequest()
	r.log(f, reason, failed)
}

// usage counts the request's tokens. The engine may have made more, behind a stop string.
func (r *request) usage(f *engine.Finish) protocol.Usage {
	return protocol.Usage{PromptTokens: len(r.prompt), CompletionTokens: r.count, CachedTokens: f.Usage.CachedTokens,
		DraftedTokens: f.Usage.DraftedTokens, AcceptedTokens: r.guessed}
}

// end returns the request's last message, done or error, and its finish reason or the
// error's code.
func (r *request) end(f *engine.Finish, failed bool, usage protocol.Usage) (msg any, reason string) {
	if failed {
		e := asError(r.model.Cause(f.Err)).For(r.id)
		r.c.server.opts.Observer.Error(e.Code)
		return e, e.Code
	}
	reason = f.Reason
	if r.stopped {
		reason = protocol.FinishStop
	}
	if reason == protocol.FinishStop && r.text.read.calls() > 0 {
		reason = protocol.FinishToolCalls
	}
	return &protocol.Done{ID: r.id, FinishReason: reason, Stop: r.text.stops.found, Timing: f.Timing, Graphs: f.Graphs,
		Usage: usage}, reason
}

func (r *request) log(f *engine.Finish, reason string, failed bool) {
	level := r.c.server.opts.requestLevel()
	if failed {
		level = zerolog.InfoLevel
	}
	line := r.c.log.WithLevel(level).Uint64("req_id", r.id).Str("model", r.model.Name).
		Int("n_prompt", len(r.prompt)).Int("n_cached", f.Usage.CachedTokens).Int("n_gen", r.count)
	if n := f.Usage.DraftedTokens; n > 0 {
		line = line.Int("n_drafted", n).Int("n_accepted", r.guessed)
	}
	line.Float64("ttft_ms", f.Timing.TTFTMS).Float64("tpot_ms", perToken(f.Timing, r.count)).
		Str("finish", reason).AnErr("error", f.Err).Msg("request")
}

// perToken returns TPOT: the mean time in milliseconds of each token after the first, or
// 0 if there is none.
func perToken(t protocol.Timing, tokens int) float64 {
	if tokens < 2 {
		return 0
	}
	return (t.TotalMS - t.TTFTMS) / float64(tokens-1)
}

// echo sends the prompt's tokens, no faster than the client reads them.
func (r *request) echo() {
	text := textBuffer{decoder: r.model.NewDecoder(nil), emit: func(t *protocol.Token) { r.append(t) }}
	for i, id := range r.prompt {
		text.push(&protocol.Token{ID: r.id, Index: i - len(r.prompt), Token: id})
		if len(r.frames) > echoBytes && r.c.writes.awaitRoom() {
			r.flush()
		}
	}
	text.flush()
	r.flush()
}

// forget frees a request's id.
func (c *conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}
