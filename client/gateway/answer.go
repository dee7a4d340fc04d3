package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"reel.internal/reel/client"
)

// answer takes the tokens of an answer's choices, of which several may come at once.
type answer interface {
	// token takes the next token of a choice.
	token(choice int, t *client.Token) error
	// done takes the end of a choice.
	done(choice int, d *client.Done) error
}

// run runs requests, each for a choice of out. The first error ends all of them.
func (g *Gateway) run(ctx context.Context, user string, m model, requests []client.Request, out answer) error {
	g.metrics.streams.Inc()
	defer g.metrics.streams.Dec()
	a := g.metrics.timed(m.name, len(requests), out)
	if len(requests) == 1 {
		return ended(ctx, one(ctx, user, m, requests[0], 0, a))
	}
	all, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for i, req := range requests {
		running.Go(func() {
			if err := one(all, user, m, req, i, a); err != nil {
				fail(err)
			}
		})
	}
	running.Wait()
	return ended(ctx, context.Cause(all))
}

// ended returns err, or the reason why the gateway has ended the request.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// one runs the request of one choice.
func one(ctx context.Context, user string, m model, req client.Request, choice int, a answer) error {
	var done client.Done
	req.Done = &done
	for t, err := range m.generate(ctx, user, req) {
		if err != nil {
			return err
		}
		if err := a.token(choice, &t); err != nil {
			return err
		}
	}
	return a.done(choice, &done)
}

// question is the body of a request of OpenAI's or Anthropic's API.
type question interface {
	names() string                                    // the model; empty: the only one
	requests(client.Limits) ([]client.Request, error) // for the generator, within its bounds
}

// accept reads a request's body into q. It returns the model that q names, and the generator's requests for it. The
// memory of a large body is counted until release is called.
func (g *Gateway) accept(
	w http.ResponseWriter, r *http.Request, q question,
) (m model, requests []client.Request, release func(), err error) {
	if release, err = g.readJSON(w, r, q); err != nil {
		return m, nil, release, err
	}
	if m, err = g.backends.find(r.Context(), q.names()); err != nil {
		return m, nil, release, err
	}
	c, err := m.describe(r.Context())
	if err != nil {
		return m, nil, release, ended(r.Context(), err)
	}
	m.identity = m.sharedIdentity()
	requests, err = q.requests(c.Limits())
	return m, requests, release, err
}

// envelope begins every object of OpenAI's API.
type envelope struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint,omitempty"`
}

// newEnvelope returns the beginning of an answer. Two answers of one fingerprint to the same request
// with the same seed are the same.
func newEnvelope(prefix, object string, m model) envelope {
	e := envelope{ID: prefix + rand.Text(), Object: object, Created: time.Now().Unix(), Model: m.name}
	if m.identity != "" {
		e.Fingerprint = "fp_" + m.identity[:min(len(m.identity), 16)]
	}
	return e
}

// usage counts an answer's tokens in OpenAI's form.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	// Drafts are the tokens that were guessed; nil: none were.
	Drafts *drafts `json:"completion_tokens_details,omitempty"`
}

// drafts counts tokens that a generator guessed and verified.
type drafts struct {
	Accepted int `json:"accepted_prediction_tokens"`
	Rejected int `json:"rejected_prediction_tokens"`
}

// add counts the tokens of a choice; those of a prompt with several choices count once.
func (u *usage) add(d *client.Done, firstOfPrompt bool) {
	u.Completion += d.Usage.CompletionTokens
	if d.Usage.DraftedTokens > 0 {
		if u.Drafts == nil {
			u.Drafts = &drafts{}
		}
		u.Drafts.Accepted += d.Usage.AcceptedTokens
		u.Drafts.Rejected += d.Usage.DraftedTokens - d.Usage.AcceptedTokens
	}
	if firstOfPrompt {
		u.Prompt += d.Usage.PromptTokens
		u.Details.Cached += d.Usage.CachedTokens
	}
	u.Total = u.Prompt + u.Completion
}

// wholeAnswer is an answer that is sent when it is complete.
type wholeAnswer interface {
	answer
	// finish puts the parts together.
	finish()
}

// whole runs requests and sends their answer when all have ended.
func (g *Gateway) whole(
	w http.ResponseWriter, r *http.Request, m model, requests []client.Request, a wholeAnswer,
) error {
	if err := g.run(r.Context(), callerOf(r), m, requests, a); err != nil {
		return err
	}
	a.finish()
	writeJSON(w, http.StatusOK, a)
	return nil
}

// events sends an answer's chunks.
type events struct {
	envelope
	*stream
	included bool // the usage comes at the end, and is null before
	choices  int  // of each prompt

	counting sync.Mutex
	usage    usage
}

func newEvents(e envelope, f *fields) events {
	n, _ := f.choices() // has been checked
	return events{envelope: e, included: f.StreamOptions.IncludeUsage, choices: n}
}

// open gives the events their stream.
func (e *events) open(s *stream) { e.stream = s }

// null is the usage of chunks before the last.
var null = json.RawMessage("null")

// noUsage returns the usage field of a chunk before the last: null, or nil for no field.
func (e *events) noUsage() any {
	if e.included {
		return null
	}
	return nil
}

// count counts a choice's tokens.
func (e *events) count(choice int, d *client.Done) {
	e.counting.Lock()
	defer e.counting.Unlock()
	e.usage.add(d, choice%e.choices == 0)
}

// last sends what comes after all choices.
func (e *events) last() error {
	if e.included {
		if err := e.send(chunk[struct{}]{e.envelope, []struct{}{}, e.usage}); err != nil {
			return err
		}
	}
	return e.text("data: [DONE]\n\n")
}

// chunk is a piece of a streamed answer.
type chunk[choice any] struct {
	envelope
	Choices []choice `json:"choices"`
	Usage   any      `json:"usage,omitempty"`
}

// streamedAnswer is an answer that is sent in chunks.
type streamedAnswer interface {
	answer
	open(*stream)
	last() error
}

// streamed runs requests and sends their tokens as they come.
func (g *Gateway) streamed(
	w http.ResponseWriter, r *http.Request, m model, requests []client.Request, a streamedAnswer,
) error {
	s := g.newStream(w, true)
	defer s.end()
	a.open(s)
	if err := g.run(r.Context(), callerOf(r), m, requests, a); err != nil {
		g.failed(r, err)
		s.fail(r, err)
		return nil
	}
	_ = a.last() // a reader that is gone misses nothing
	return nil
}
