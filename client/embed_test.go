package client

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

func TestEmbed(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Embeds: true, Cached: 3})
	if e := c.Embeddings(); e == nil || e.Dimensions != fakegen.EmbedWidth || e.Least != 2 {
		t.Fatalf("embeddings %+v", e)
	}
	for _, r := range []struct {
		req  EmbedRequest
		want protocol.Vector
	}{
		{EmbedRequest{Text: "abcd"}, protocol.Vector{2, 5, 0, 0}},
		{EmbedRequest{Tokens: []int32{1, 2, 3}}, protocol.Vector{0, 3, 0, 0}},
		{EmbedRequest{Text: "ab", Dimensions: new(2)}, protocol.Vector{1, 3}},
	} {
		e, err := c.Embed(t.Context(), r.req)
		if err != nil || !slices.Equal(e.Vector, r.want) || e.Usage.CachedTokens != 3 {
			t.Errorf("%+v: %+v, %v, want %v", r.req, e, err, r.want)
		}
	}
	var refused *Error
	if _, err := c.Embed(t.Context(), EmbedRequest{Text: "a", Dimensions: new(1)}); !errors.As(err, &refused) ||
		refused.Code != protocol.CodeBadRequest {
		t.Errorf("%v, want bad_request", err)
	}
	if _, err := c.Embed(t.Context(), EmbedRequest{Text: "\xff"}); !errors.As(err, &refused) || refused.ID != nil {
		t.Errorf("%v, want a refusal by the client itself", err)
	}
}

// A generator gets every field of a request, and defaults are left out.
func TestEmbedCarriesEveryField(t *testing.T) {
	c, g := connect(t, fakegen.Script{Embeds: true})
	all := EmbedRequest{Text: "a", Special: new(false), PromptName: new("query"), Normalize: new(false),
		Dimensions: new(3), Truncate: true, Cache: "off", User: "eva"}
	for _, r := range []EmbedRequest{all, {Text: "b"}} {
		if _, err := c.Embed(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	first, err := g.Wait(deadline(t), func(m any) bool { e, ok := m.(*protocol.Embed); return ok && *e.Prompt == "a" })
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(first).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Tokens" && v.Field(i).IsZero() {
			t.Errorf("%s was not sent", name)
		}
	}
	second, err := g.Wait(deadline(t), func(m any) bool { e, ok := m.(*protocol.Embed); return ok && *e.Prompt == "b" })
	want := &protocol.Embed{Type: protocol.TypeEmbed, ID: 2, Prompt: new("b")}
	if err != nil || !reflect.DeepEqual(second, want) {
		t.Errorf("%+v, %v, want %+v", second, err, want)
	}
}

// A model of the other kind says so before a request, and refuses it.
func TestEmbedOfAnotherModel(t *testing.T) {
	c, _ := connect(t, fakegen.Script{})
	var refused *Error
	if _, err := c.Embed(t.Context(), EmbedRequest{Text: "a"}); c.Embeddings() != nil || !errors.As(err, &refused) ||
		refused.Code != protocol.CodeNoEmbeddings {
		t.Errorf("%v, want %s", err, protocol.CodeNoEmbeddings)
	}
}

// The end of ctx cancels the request, and the connection stays.
func TestEmbedIsCancelled(t *testing.T) {
	c, g := connect(t, fakegen.Script{Embeds: true, Ending: fakegen.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		received[*protocol.Embed](t, g)
		cancel()
	}()
	if _, err := c.Embed(ctx, EmbedRequest{Text: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if m := received[*protocol.Cancel](t, g); m.ID != 1 {
		t.Errorf("cancelled %d, want 1", m.ID)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// A vector that nobody asked for, and one with more elements than the generator announced, end the connection.
func TestEmbeddingsThatWereNotAskedFor(t *testing.T) {
	c, _ := connect(t, fakegen.Script{Embeds: true, Spoil: func(reply any) {
		if e, ok := reply.(*protocol.Embedding); ok {
			e.Vector = make(protocol.Vector, fakegen.EmbedWidth+1)
		}
	}})
	if _, err := c.Embed(t.Context(), EmbedRequest{Text: "a"}); !errors.Is(err, ErrConnectionLost) ||
		!errors.Is(err, errNotAsked) {
		t.Errorf("a wide vector: %v, want %v", err, errNotAsked)
	}
	c, _ = connect(t, fakegen.Script{Embeds: true})
	s := c.newStream() // of a completion
	c.streams[s.id] = s
	if err := c.takeEmbedding(&Embedding{ID: s.id, Vector: make(protocol.Vector, 1)}); !errors.Is(err, errNotAsked) {
		t.Errorf("an embedding for a completion: %v, want %v", err, errNotAsked)
	}
}
