package server

import (
	"math"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// endingTokenizer is a byteTokenizer that puts "<" before and ">" behind a text with post-processor, as models for
// embeddings want an end.
type endingTokenizer struct{ *byteTokenizer }

func (e endingTokenizer) EncodeMarked(t marked.Text, postProcessor bool) ([]int32, error) {
	tokens, err := e.byteTokenizer.EncodeMarked(t, true)
	if err == nil && postProcessor {
		tokens = slices.Concat([]int32{'<'}, tokens, []int32{'>'})
	}
	return tokens, err
}

// embedder starts a ready server with a model for embeddings.
func embedder(t *testing.T) *fixture {
	t.Helper()
	f := start(t, nil)
	f.engine.embeds = true
	m := f.model()
	m.Tokenizer = endingTokenizer{f.tok}
	m.Embedding = &Embedding{Embeddings: protocol.Embeddings{Dimensions: 4, Least: 2, Normalized: true,
		Prompts: []string{"query"}}, Texts: map[string]string{"query": "Q:"}}
	f.SetReady(m)
	return f
}

// embedded sends an embed and returns the reply.
func (c *testClient) embedded(m protocol.Embed) any {
	c.t.Helper()
	c.send(&m)
	return c.reply()
}

// reply returns the next message.
func (c *testClient) reply() any {
	c.t.Helper()
	msg, err := c.read()
	if err != nil {
		c.t.Fatal(err)
	}
	return msg
}

// A vector has the length that the request asks for, of the elements that it asks for.
func TestEmbed(t *testing.T) {
	f := embedder(t)
	c := f.client()
	// The vector of n tokens of which the first is t is n, t, 0, 3.
	for _, r := range []struct {
		m    protocol.Embed
		want protocol.Vector
	}{
		{protocol.Embed{Prompt: new("ab"), Normalize: new(false)}, protocol.Vector{4, '<', 0, 3}},
		{protocol.Embed{Tokens: []int32{4, 5, 6}}, scaled(3, 4, 0, 3)},
		{protocol.Embed{Tokens: []int32{4, 5, 6}, Dimensions: new(2)}, protocol.Vector{0.6, 0.8}},
		{protocol.Embed{Tokens: []int32{4, 5, 6}, Dimensions: new(2), Normalize: new(false)}, protocol.Vector{3, 4}},
		{protocol.Embed{Prompt: new("ab"), PromptName: new("query"), Normalize: new(false)},
			protocol.Vector{6, '<', 0, 3}},
		{protocol.Embed{Prompt: new("ab"), PromptName: new(""), Normalize: new(false)}, protocol.Vector{4, '<', 0, 3}},
		{protocol.Embed{Tokens: make([]int32, testContext), Normalize: new(false)},
			protocol.Vector{testContext, 0, 0, 3}},
	} {
		r.m.ID = 7
		e, ok := c.embedded(r.m).(*protocol.Embedding)
		if !ok || e.ID != 7 || !slices.Equal(e.Vector, r.want) || e.Usage.PromptTokens == 0 {
			t.Errorf("%+v: %+v, want %v", r.m, e, r.want)
		}
	}
	if e := f.Status().Embeddings; e == nil || e.Dimensions != 4 {
		t.Errorf("status has embeddings %+v", e)
	}
	if n := f.Status().Requests.Finished; n != 7 {
		t.Errorf("%d requests finished, want 7", n)
	}
	// A request that comes before the reader waits again finds the engine woken by the one before it.
	if n := f.engine.foreseenSubmits(); n != 7 {
		t.Errorf("the engine expected %d of the requests, want 7", n)
	}
}

// scaled returns the vector of length 1 of that direction.
func scaled(v ...float64) (unit protocol.Vector) {
	sum := 0.
	for _, f := range v {
		sum += f * f
	}
	for _, f := range v {
		unit = append(unit, float32(f/math.Sqrt(sum)))
	}
	return unit
}

// A text that does not fit is cut on request. The tokens around it stay.
func TestEmbedIsCut(t *testing.T) {
	f := embedder(t)
	c := f.client()
	long := strings.Repeat("a", testContext-2)
	for _, r := range []struct {
		m    protocol.Embed
		code string
	}{
		{protocol.Embed{Prompt: &long}, ""},
		{protocol.Embed{Prompt: new(long + "b")}, protocol.CodePromptTooLong},
		{protocol.Embed{Prompt: new(long + "bc"), Truncate: true}, ""},
		{protocol.Embed{Tokens: make([]int32, testContext+1)}, protocol.CodePromptTooLong},
		{protocol.Embed{Tokens: make([]int32, testContext+1), Truncate: true}, ""},
	} {
		switch m := c.embedded(r.m).(type) {
		case *protocol.Embedding:
			got := f.engine.prompt()
			if r.code != "" || len(got) != testContext {
				t.Errorf("%d tokens were computed, want %q", len(got), r.code)
			}
			if r.m.Prompt != nil && (got[0] != '<' || got[testContext-1] != '>' || slices.Contains(got, 'b')) {
				t.Errorf("the tokens %v do not begin and end as a text's", got)
			}
		case *protocol.Error:
			if m.Code != r.code {
				t.Errorf("%+v, want %q", m, r.code)
			}
		}
	}
}

// Requests are refused by name, with their ids.
func TestEmbedIsRefused(t *testing.T) {
	f := embedder(t)
	c := f.client()
	for _, r := range []struct {
		msg  any
		code string
		says string
	}{
		{&protocol.Embed{ID: 3, Prompt: new("a"), PromptName: new("other")}, protocol.CodeBadRequest,
			`prompts ["query"]`},
		{&protocol.Embed{ID: 3, Prompt: new("a"), Dimensions: new(1)}, protocol.CodeBadRequest, "dimensions is 1"},
		{&protocol.Embed{ID: 3, Prompt: new("!")}, protocol.CodeBadRequest, "cannot be tokenized"},
		{&protocol.Embed{ID: 3, Prompt: new("[PAD]")}, protocol.CodeBadRequest, "without weights"},
		{&protocol.Embed{ID: 3}, protocol.CodeBadRequest, "neither"},
		{&protocol.Generate{ID: 3, Prompt: new("a")}, protocol.CodeNoGeneration, "fake is meant for embeddings"},
	} {
		c.send(r.msg)
		if e, ok := c.reply().(*protocol.Error); !ok || e.Code != r.code || *e.ID != 3 ||
			!strings.Contains(e.Message, r.says) {
			t.Errorf("%+v: %+v, want %s with %q", r.msg, e, r.code, r.says)
		}
	}
	if n := f.Status().Requests.Refused; n != 6 {
		t.Errorf("%d requests were refused, want 6", n)
	}
	other := ready(t, nil)
	if e, ok := other.client().embedded(protocol.Embed{ID: 3, Prompt: new("a")}).(*protocol.Error); !ok ||
		e.Code != protocol.CodeNoEmbeddings || *e.ID != 3 {
		t.Errorf("%+v, want %s", e, protocol.CodeNoEmbeddings)
	}
	if _, live := other.engine.counts(); live != 0 {
		t.Error("the engine was asked")
	}
}

// An embed shares ids and bounds with completions: it is cancelled, refused when the queue is full, and fails with its
// engine.
func TestEmbedIsARequest(t *testing.T) {
	f := embedder(t)
	f.engine.allow(0)
	c := f.client()
	c.send(&protocol.Embed{ID: 1, Prompt: new("a"), User: new("eva"), Cache: new(protocol.CacheRead)})
	if e, ok := c.embedded(protocol.Embed{ID: 1, Prompt: new("b")}).(*protocol.Error); !ok ||
		e.Code != protocol.CodeDuplicateID {
		t.Errorf("%+v, want %s", e, protocol.CodeDuplicateID)
	}
	if u := f.engine.asker(); u.Name != "eva" || f.engine.cacheMode() != engine.CacheRead {
		t.Errorf("the engine was asked by %+v, cache %v", u, f.engine.cacheMode())
	}
	c.send(&protocol.Cancel{ID: 1})
	if d, ok := c.reply().(*protocol.Done); !ok || d.FinishReason != protocol.FinishCancelled || d.ID != 1 {
		t.Errorf("%+v, want done, cancelled", d)
	}
	c.send(&protocol.Embed{ID: 2, Prompt: new("a")})
	if e, ok := c.embedded(protocol.Embed{ID: 2, Prompt: new("b")}).(*protocol.Error); !ok || *e.ID != 2 {
		t.Errorf("%+v, want %s", e, protocol.CodeDuplicateID)
	}
	f.engine.refuseNext(engine.ErrBusy)
	if e, ok := c.embedded(protocol.Embed{ID: 3, Prompt: new("b")}).(*protocol.Error); !ok ||
		e.Code != protocol.CodeBusy {
		t.Errorf("%+v, want %s", e, protocol.CodeBusy)
	}
	f.engine.stop(engine.ErrNumeric)
	if e, ok := c.reply().(*protocol.Error); !ok || e.Code != protocol.CodeInternal || *e.ID != 2 {
		t.Errorf("%+v, want %s of 2", e, protocol.CodeInternal)
	}
}
