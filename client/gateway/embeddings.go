package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"reel.internal/reel/client"
)

const (
	// maxInputs bounds the texts of a request, as in OpenAI's API.
	maxInputs = 2048
	// inputsAtOnce are those that a request has in the generator at a time.
	inputsAtOnce = maxChoices
	// elementBytes is about what an element of a vector takes, with its digits in an answer.
	elementBytes = 16
)

// embeddingRequest is the body of /v1/embeddings.
type embeddingRequest struct {
	Model          string  `json:"model"`
	Input          inputs  `json:"input"`
	EncodingFormat string  `json:"encoding_format"`
	Dimensions     *int    `json:"dimensions"`
	PromptName     *string `json:"prompt_name"` // sentence-transformers' name
	refused
}

// inputs are texts or lists of token ids.
type inputs struct{ prompts }

// UnmarshalJSON decodes what prompts decodes.
func (i *inputs) UnmarshalJSON(text []byte) error {
	err := i.prompts.UnmarshalJSON(text)
	if own := (*apiError)(nil); errors.As(err, &own) {
		return badField("input", "want a text, a list of texts, a list of token ids or a list of such lists")
	}
	return err
}

// requests returns the protocol's requests for q, whose vectors have the length 1, as OpenAI's have.
func (q *embeddingRequest) requests() (list []client.EmbedRequest, err error) {
	req := client.EmbedRequest{Normalize: new(true), Dimensions: q.Dimensions, PromptName: q.PromptName}
	for i, text := range q.Input.texts {
		if text == "" {
			return nil, badField("input", fmt.Sprintf("text %d is empty", i))
		}
		req.Text = text
		list = append(list, req)
	}
	req.Text = ""
	for i, ids := range q.Input.tokens {
		if len(ids) == 0 {
			return nil, badField("input", fmt.Sprintf("list %d of tokens is empty", i))
		}
		req.Tokens = ids
		list = append(list, req)
	}
	switch {
	case len(list) == 0:
		return nil, badField("input", "it is missing")
	case q.EncodingFormat != "" && q.EncodingFormat != "float" && q.EncodingFormat != "base64":
		return nil, badField("encoding_format", "want float or base64")
	}
	return list, q.refused.check()
}

// openAIEmbedding is a vector in OpenAI's form.
type openAIEmbedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // a list of numbers, or in base64 the float32 of the protocol
}

// embed answers POST /v1/embeddings.
func (g *Gateway) embed(w http.ResponseWriter, r *http.Request) error {
	var q embeddingRequest
	release, err := g.readJSON(w, r, &q)
	defer release()
	if err != nil {
		return err
	}
	m, err := g.backends.find(r.Context(), q.Model)
	if err != nil {
		return err
	}
	requests, err := q.requests()
	if err != nil {
		return err
	}
	all, tokens, done, err := g.embeddings(r, m, requests)
	defer done()
	if err != nil {
		return err
	}
	data := make([]openAIEmbedding, len(all))
	for i, v := range all {
		data[i] = openAIEmbedding{Object: "embedding", Index: i, Embedding: v.Vector}
		if q.EncodingFormat == "base64" {
			data[i].Embedding = inBase64(v.Vector)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data, "model": m.name,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
	return nil
}

// inBase64 returns the elements of v as float32, little-endian, in base64.
func inBase64(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// embeddings runs requests, some at a time, and returns their vectors in order and the number of tokens of all texts.
// The first error ends all of them. The vectors' memory is counted until done is called.
func (g *Gateway) embeddings(r *http.Request, m model, requests []client.EmbedRequest) (
	all []*client.Embedding, tokens int, done func(), err error) {
	done = func() {}
	if len(requests) > maxInputs {
		return nil, 0, done, badField("input", fmt.Sprintf("%d texts: want at most %d", len(requests), maxInputs))
	}
	if done, err = g.vectorRoom(r, m, requests); err != nil {
		return nil, 0, done, err
	}
	g.metrics.streams.Inc()
	defer g.metrics.streams.Dec()
	ctx, fail := context.WithCancelCause(r.Context())
	defer fail(nil)
	all, next := make([]*client.Embedding, len(requests)), make(chan int)
	var running sync.WaitGroup
	for range min(inputsAtOnce, len(requests)) {
		running.Go(func() {
			for i := range next {
				v, err := m.embed(ctx, callerOf(r), requests[i])
				if err != nil {
					fail(err)
					return
				}
				all[i] = v
			}
		})
	}
	for i := 0; i < len(requests) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	if ctx.Err() != nil {
		return nil, 0, done, ended(r.Context(), context.Cause(ctx))
	}
	return all, g.metrics.embedded(m.name, all), done, nil
}

// vectorRoom takes the memory that the vectors and their digits need. A model of the other kind is refused when the
// generator is asked.
func (g *Gateway) vectorRoom(r *http.Request, m model, requests []client.EmbedRequest) (release func(), err error) {
	c, err := m.describe(r.Context())
	if err != nil {
		return func() {}, ended(r.Context(), err)
	}
	width := 0
	if e := c.Embeddings(); e != nil {
		width = e.Dimensions
	}
	size := int64(len(requests)) * int64(width) * elementBytes
	if size > g.bodies.total/2 {
		return func() {}, refuse(http.StatusRequestEntityTooLarge, "request_too_large",
			fmt.Sprintf("%d vectors of %d elements are too many for one answer (ask for fewer)", len(requests), width))
	}
	release, ok := g.room(r, size)
	if !ok {
		return func() {}, errBodies
	}
	return release, nil
}

// embedded counts the tokens of texts, and returns their number.
func (m *metrics) embedded(model string, all []*client.Embedding) (tokens int) {
	cached := 0
	for _, v := range all {
		tokens, cached = tokens+v.Usage.PromptTokens, cached+v.Usage.CachedTokens
	}
	m.tokens.WithLabelValues(model, "prompt").Add(float64(tokens))
	m.tokens.WithLabelValues(model, "cached").Add(float64(cached))
	return tokens
}

// embed runs a request of a user, as [client.Client.Embed] does. It waits for a place, and repeats a request that the
// generator could not take.
func (b *backend) embed(ctx context.Context, user string, req client.EmbedRequest) (v *client.Embedding, err error) {
	req.User = user
	if err := b.places.take(ctx, user); err != nil {
		return nil, err
	}
	defer b.places.give(user)
	until := time.Now().Add(busyTime)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v, err = b.embedOnce(ctx, user, req)
		if err == nil || !mayRepeat(err) || time.Now().Add(pause).After(until) || !sleep(ctx, pause) {
			return v, err
		}
	}
}

// embedOnce runs req on one connection.
func (b *backend) embedOnce(ctx context.Context, user string, req client.EmbedRequest) (v *client.Embedding, err error) {
	l, err := b.borrow(ctx, user)
	if err != nil {
		return nil, err
	}
	defer func() { b.giveBack(l, err) }()
	return l.c.Embed(ctx, req)
}
