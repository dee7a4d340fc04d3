package server

import (
	"sync"
	"time"

	"reel/generator/internal/engine"
	"reel/protocol"
)

// echoBytes is how much of an echoed prompt is queued at once.
const echoBytes = 16 << 10

// request streams one completion: mailbox → text → stop strings → frames.
type request struct {
	c      *conn
	id     uint64
	model  *Model
	params protocol.Params
	prompt []int32
	box    *mailbox
	handle engine.Handle

	// work is held by whoever makes frames of tokens: what follows is his. It is held
	// from the beginning until the echo is through.
	work    sync.Mutex
	text    holder
	stopped bool      // a stop string was found: what the engine still sends is dropped
	count   int       // tokens of the completion, sent or held
	last    time.Time // when its last token came
	frames  []byte

	// The token at hand; the next one takes its place.
	message protocol.Token
	logprob float64
	top     []protocol.TopToken
}

func newRequest(c *conn, model *Model, m *protocol.Generate, tokens []int32) *request {
	r := &request{c: c, id: m.ID, model: model, params: m.Params(), prompt: tokens, box: newMailbox()}
	r.work.Lock()
	r.text = holder{
		decoder: model.NewDecoder(tokens),
		stops:   stopFilter{stops: r.params.Stop},
		emit:    func(t *protocol.Token) { r.append(t) },
	}
	return r
}

// submit hands the request to the engine. From then on stream has to run.
func (r *request) submit(received time.Time) *protocol.Error {
	sampling := sampling(r.params)
	handle, err := r.model.Engine.Submit(&engine.Request{
		Tokens: r.prompt, MaxTokens: r.params.MaxTokens, IgnoreEOS: r.params.IgnoreEOS,
		Sampling: sampling, User: r.c.peer.uid, Connection: r.c.number, Received: received, Sink: r,
	})
	if err != nil {
		return asError(err)
	}
	r.handle = handle
	r.c.log.Debug().Uint64("req_id", r.id).Uint64("seed", sampling.Seed).Msg("submitted")
	return nil
}

func (r *request) cancel() { r.model.Engine.Cancel(r.handle) }

// stream sends what the engine's thread leaves to it, then the request's end.
func (r *request) stream() {
	if r.params.Echo {
		r.echo()
	}
	r.work.Unlock()
	for ended := false; !ended; {
		r.box.await()
		ended = r.deliver()
	}
}

// deliver sends what is in the mailbox, and says whether that was the end.
func (r *request) deliver() bool {
	r.work.Lock()
	defer r.work.Unlock()
	got := r.box.take()
	r.observe(len(got.tokens))
	for i := range got.tokens {
		r.token(&got.tokens[i])
	}
	if got.finish != nil {
		r.finish(got.finish)
		return true
	}
	r.flush()
	return false
}

// observe notes when n tokens came.
func (r *request) observe(n int) {
	if n == 0 || r.stopped {
		return
	}
	now := time.Now()
	if !r.last.IsZero() {
		r.c.s.opts.Observer.Tokens(n, now.Sub(r.last))
	}
	r.last = now
}

// token adds one token to what is to be sent.
func (r *request) token(t *engine.Token) {
	if r.stopped {
		return
	}
	r.count++
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
		r.top = append(r.top, protocol.TopToken{Token: alt.ID, Text: r.model.Tokenizer.TokenText(alt.ID), Logprob: float64(alt.Logprob)})
	}
	r.message.Logprob, r.message.Top = &r.logprob, r.top
}

func (r *request) append(msg any) {
	frames, err := protocol.AppendFrame(r.frames, msg)
	if err != nil {
		r.c.log.Error().Err(err).Uint64("req_id", r.id).Msg("cannot encode")
	}
	r.frames = frames
}

// flush queues the frames that are ready.
func (r *request) flush() {
	if len(r.frames) > 0 {
		r.c.queue(r.frames)
		r.frames = r.frames[:0]
	}
}

// finish sends what was held back, then done or error. The id is free, and the end
// counted, before the client can read it; the request is counted out after its last
// frame is queued.
func (r *request) finish(f *engine.Finish) {
	failed := f.Err != nil && !r.stopped
	if !failed && !r.stopped {
		r.stopped = r.text.flush()
	}
	end, reason := r.done(f)
	if failed {
		e := asError(r.model.Cause(f.Err)).For(r.id)
		end, reason = e, e.Code
		r.c.s.opts.Observer.Error(e.Code)
	}
	usage := protocol.Usage{PromptTokens: len(r.prompt), CompletionTokens: r.count}
	r.c.s.opts.Observer.Request(reason, usage, f.Timing)
	r.append(end)
	r.c.forget(r.id)
	r.c.s.counts.ended(reason, failed)
	r.flush()
	r.c.s.end()
	r.c.log.Info().Uint64("req_id", r.id).Str("model", r.model.Name).Int("n_prompt", len(r.prompt)).Int("n_gen", r.count).
		Float64("ttft_ms", f.Timing.TTFTMS).Float64("tpot_ms", perToken(f.Timing, r.count)).Str("finish", reason).AnErr("error", f.Err).Msg("request")
}

// perToken is the time of each token after the first, in milliseconds; 0 where there is none.
func perToken(t protocol.Timing, tokens int) float64 {
	if tokens < 2 {
		return 0
	}
	return (t.TotalMS - t.TTFTMS) / float64(tokens-1)
}

// done is the message that ends a request that did not fail, and its reason.
func (r *request) done(f *engine.Finish) (msg any, reason string) {
	reason = f.Reason
	if r.stopped {
		reason = protocol.FinishStop
	}
	return &protocol.Done{
		ID: r.id, FinishReason: reason, Timing: f.Timing, Graphs: f.Graphs,
		Usage: protocol.Usage{PromptTokens: len(r.prompt), CompletionTokens: r.count},
	}, reason
}

// echo sends the prompt's tokens, no faster than the client reads them.
func (r *request) echo() {
	text := holder{decoder: r.model.NewDecoder(nil), emit: r.text.emit}
	for i, id := range r.prompt {
		text.push(&protocol.Token{ID: r.id, Index: i - len(r.prompt), Token: id})
		if len(r.frames) > echoBytes && r.c.out.awaitRoom() {
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
