package server

import (
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
	seed   uint64
	box    *mailbox
	handle engine.Handle

	decoder Decoder
	stops   stopFilter
	stopped bool // a stop string was found: what the engine still sends is dropped
	count   int  // tokens of the completion

	// The last token waits in message while text after it is held back, since
	// the tail of a completion comes with its last token.
	message protocol.Token
	waiting bool
	logprob float64             // backs message.Logprob
	top     []protocol.TopToken // backs message.Top
	frames  []byte              // ready to be queued
}

func newRequest(c *conn, model *Model, m *protocol.Generate, tokens []int32) *request {
	p := m.Params()
	return &request{
		c: c, id: m.ID, model: model, params: p, prompt: tokens, box: newMailbox(),
		decoder: model.NewDecoder(), stops: stopFilter{stops: p.Stop},
	}
}

// submit hands the request to the engine. From then on stream has to run.
func (r *request) submit(received time.Time) *protocol.Error {
	if e := r.c.s.begin(); e != nil {
		return e
	}
	sampling := sampling(r.params)
	handle, err := r.model.Engine.Submit(&engine.Request{
		Tokens: r.prompt, MaxTokens: r.params.MaxTokens, IgnoreEOS: r.params.IgnoreEOS,
		Sampling: sampling, Received: received, Sink: r.box,
	})
	if err != nil {
		r.c.s.end()
		return asError(err)
	}
	r.handle = handle
	r.c.log.Debug().Uint64("req_id", r.id).Uint64("seed", sampling.Seed).Msg("submitted")
	return nil
}

func (r *request) cancel() { r.model.Engine.Cancel(r.handle) }

// stream sends the request's tokens as they come, then its end.
func (r *request) stream() {
	if r.params.Echo {
		r.echo()
	}
	for {
		got := r.box.take()
		for i := range got.tokens {
			r.token(&got.tokens[i])
		}
		if got.finish != nil {
			r.finish(got.finish)
			return
		}
		r.flush()
	}
}

// token adds one token to what is to be sent. It is held while its text, or a
// part of it, is.
func (r *request) token(t *engine.Token) {
	if r.stopped {
		return
	}
	r.release()
	r.count++
	text, stopped := r.stops.push(r.decoder.Push(t.ID))
	r.describe(t, text)
	if stopped {
		r.stopped = true
		r.cancel()
	}
	if stopped || r.decoder.Held() == 0 && r.stops.held == "" {
		r.release()
	}
}

// describe makes t the waiting message.
func (r *request) describe(t *engine.Token, text string) {
	r.message = protocol.Token{ID: r.id, Index: t.Index, Token: t.ID, Text: text}
	r.waiting = true
	if !r.params.HasLogprobs {
		return
	}
	r.logprob = float64(t.Logprob)
	r.message.Logprob = &r.logprob
	r.top = r.top[:0]
	for _, alt := range t.Top {
		r.top = append(r.top, protocol.TopToken{Token: alt.ID, Text: r.model.Tokenizer.TokenText(alt.ID), Logprob: float64(alt.Logprob)})
	}
	r.message.Top = r.top
}

// release turns the waiting message into a frame.
func (r *request) release() {
	if r.waiting {
		r.append(&r.message)
		r.waiting = false
	}
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

// finish sends the held-back tail with the last token, then done or error. The
// id is free before the client can read the end, and the request is counted out
// after its last frame is queued.
func (r *request) finish(f *engine.Finish) {
	if !r.stopped {
		r.tail()
	}
	r.release()
	end, reason := r.end(f)
	r.append(end)
	r.c.forget(r.id)
	r.flush()
	r.c.s.counts.ended(reason, f.Err != nil && !r.stopped)
	r.c.s.end()
	r.c.log.Info().Uint64("req_id", r.id).Int("n_prompt", len(r.prompt)).Int("n_gen", r.count).
		Float64("ttft_ms", f.Timing.TTFTMS).Str("finish", reason).Msg("request")
}

// tail gives what is held back to the waiting message.
func (r *request) tail() {
	text, stopped := r.stops.push(r.decoder.Flush())
	if !stopped {
		var rest string
		rest, stopped = r.stops.flush()
		text += rest
	}
	r.message.Text += text
	r.stopped = stopped
}

// end is the last message, and the reason or the error's code.
func (r *request) end(f *engine.Finish) (msg any, reason string) {
	if f.Err != nil && !r.stopped {
		e := asError(f.Err).For(r.id)
		return e, e.Code
	}
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
	decoder := r.model.NewDecoder()
	for i, id := range r.prompt {
		text := decoder.Push(id)
		if i == len(r.prompt)-1 {
			text += decoder.Flush()
		}
		r.append(&protocol.Token{ID: r.id, Index: i - len(r.prompt), Token: id, Text: text})
		if len(r.frames) > echoBytes && r.c.out.awaitRoom() {
			r.flush()
		}
	}
	r.flush()
}

// forget frees a request's id.
func (c *conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}
