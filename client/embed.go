package client

import (
	"cmp"
	"context"
	"fmt"

	"reel.internal/reel/protocol"
)

// Embedding is the embedding of a text, with usage, timing and graphs.
type Embedding = protocol.Embedding

// Embeddings says what vectors a model for embeddings makes.
type Embeddings = protocol.Embeddings

// EmbedRequest describes one embedding. Set one of Text and Tokens. A nil field has the default that PROTOCOL.md gives
// together with the bounds.
type EmbedRequest struct {
	Text    string
	Tokens  []int32 // the text as token ids; Text is empty then
	Special *bool   // is like that of Request
	// PromptName names one of Embeddings.Prompts, which comes before Text; nil: the model's default, "": none.
	PromptName *string
	Normalize  *bool // give the vector the length 1; nil: as the model's own pipeline does
	Dimensions *int  // how many leading elements of the vector are wanted; nil: all
	Truncate   bool  // cut a text that does not fit the context, rather than refuse it
	// Cache and User are like those of Request.
	Cache string
	User  string
}

// message returns r as a message of the protocol.
func (r *EmbedRequest) message(id uint64) *protocol.Embed {
	m := &protocol.Embed{ID: id, Tokens: r.Tokens, Special: r.Special, PromptName: r.PromptName, Normalize: r.Normalize,
		Dimensions: r.Dimensions, Truncate: r.Truncate, Cache: given(r.Cache), User: given(r.User)}
	if r.Text != "" || len(r.Tokens) == 0 {
		m.Prompt = &r.Text
	}
	return m
}

// check refuses texts for which the generator would close the connection.
func (r *EmbedRequest) check() error {
	name := ""
	if r.PromptName != nil {
		name = *r.PromptName
	}
	return cmp.Or(checkText("the text", r.Text), checkTexts("the prompt's name, cache or user", name, r.Cache, r.User))
}

// Embeddings returns what vectors the model makes. It is nil for a model that draws tokens: Embed is then refused with
// protocol.CodeNoEmbeddings, and otherwise Generate with protocol.CodeNoGeneration.
func (c *Client) Embeddings() *Embeddings { return c.welcome.Embeddings }

// Embed returns the embedding of a text. Ending ctx cancels the request on the generator. Errors are those of
// [Client.Generate].
func (c *Client) Embed(ctx context.Context, req EmbedRequest) (*Embedding, error) {
	if err := cmp.Or(ctx.Err(), req.check()); err != nil {
		return nil, err
	}
	s := c.newStream()
	s.embeds = true
	if err := c.begin(s, req.message(s.id)); err != nil {
		return nil, err
	}
	defer c.release(s)
	message, err := s.next(ctx, c.lost)
	if err != nil {
		return nil, err
	}
	switch m := message.(type) {
	case *Embedding:
		return m, nil
	case *Error:
		return nil, m
	case *Done:
		return nil, fmt.Errorf("%w: the request ended with %q in place of an embedding", ErrConnectionLost,
			m.FinishReason)
	}
	return nil, c.cause
}

// takeEmbedding gives an embedding to its stream. An error ends the connection: nobody asked for it, or it has more
// elements than the generator announced.
func (c *Client) takeEmbedding(m *Embedding) error {
	s := c.streamOf(m.ID, true)
	if s == nil {
		return nil
	}
	if e := c.welcome.Embeddings; !s.embeds || e == nil || len(m.Vector) > e.Dimensions {
		return fmt.Errorf("%w: an embedding of %d elements for request %d", errNotAsked, len(m.Vector), m.ID)
	}
	c.deliver(s, m)
	return nil
}
