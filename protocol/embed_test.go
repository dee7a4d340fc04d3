package protocol

import (
	"bytes"
	"strings"
	"testing"
)

var testEmbeddings = Embeddings{Dimensions: 1024, Least: 32, Normalized: true}

// Every field of embed is checked against its bounds, and the error carries the request's id.
func TestEmbedValidate(t *testing.T) {
	whole := Embeddings{Dimensions: 1024, Least: 1024}
	many := make(TokenIDs, 513)
	for _, c := range []struct {
		name string
		set  func(*Embed)
		m    Embeddings
		code string
		want string
	}{
		{"nothing", func(*Embed) {}, testEmbeddings, "", ""},
		{"a prompt at its bound", func(e *Embed) { e.Prompt = ptr(strings.Repeat("a", 1000)) }, testEmbeddings, "", ""},
		{"a prompt too long", func(e *Embed) { e.Prompt = ptr(strings.Repeat("a", 1001)) }, testEmbeddings,
			CodePromptTooLong, "prompt has 1001 bytes"},
		{"an empty prompt", func(e *Embed) { e.Prompt = ptr("") }, testEmbeddings, CodeBadRequest, "prompt is empty"},
		{"no prompt", func(e *Embed) { e.Prompt = nil }, testEmbeddings, CodeBadRequest, "neither prompt nor tokens"},
		{"both", func(e *Embed) { e.Tokens = TokenIDs{1} }, testEmbeddings, CodeBadRequest, "both prompt and tokens"},
		{"tokens", embedTokens(0, 4095), testEmbeddings, "", ""},
		{"no tokens", embedTokens([]int32{}...), testEmbeddings, CodeBadRequest, "tokens is empty"},
		{"a full context", embedTokens(many[:512]...), testEmbeddings, "", ""},
		{"too many tokens", embedTokens(many...), testEmbeddings, CodePromptTooLong,
			"513 tokens: the context holds 512"},
		{"too many, to be cut", func(e *Embed) { embedTokens(many...)(e); e.Truncate = true }, testEmbeddings, "", ""},
		{"no such token", embedTokens(1, 4096), testEmbeddings, CodeBadRequest, "tokens[1] is 4096"},
		{"special tokens", func(e *Embed) { embedTokens(1)(e); e.Special = ptr(false) }, testEmbeddings, CodeBadRequest,
			"without prompt"},
		{"a prompt before tokens", func(e *Embed) { embedTokens(1)(e); e.PromptName = ptr("query") }, testEmbeddings,
			CodeBadRequest, "without prompt"},
		{"dimensions at their bounds", dimensions(32), testEmbeddings, "", ""},
		{"dimensions at their bounds", dimensions(1024), testEmbeddings, "", ""},
		{"too few dimensions", dimensions(31), testEmbeddings, CodeBadRequest,
			"dimensions is 31: it must be 32 to 1024"},
		{"too many dimensions", dimensions(1025), testEmbeddings, CodeBadRequest, "dimensions is 1025"},
		{"all dimensions", dimensions(1024), whole, "", ""},
		{"fewer than trained for", dimensions(512), whole, CodeBadRequest, "it was not trained for fewer"},
		{"cache", func(e *Embed) { e.Cache = ptr("maybe") }, testEmbeddings, CodeBadRequest, `cache is "maybe"`},
		{"user", func(e *Embed) { e.User = ptr(strings.Repeat("a", 65)) }, testEmbeddings, CodeBadRequest,
			"user has 65 bytes"},
	} {
		e := Embed{ID: 7, Prompt: ptr("a")}
		c.set(&e)
		switch err := e.Validate(testLimits, c.m); {
		case c.code == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.code != "" && (err == nil || err.Code != c.code || *err.ID != 7 ||
			!strings.Contains(err.Message, c.want)):
			t.Errorf("%s: %+v, want %s with %q", c.name, err, c.code, c.want)
		}
	}
}

func embedTokens(ids ...int32) func(*Embed) {
	return func(e *Embed) { e.Prompt, e.Tokens = nil, ids }
}

func dimensions(n int) func(*Embed) { return func(e *Embed) { e.Dimensions = &n } }

// A vector has whole elements.
func TestVectorOfHalfAnElement(t *testing.T) {
	frame, err := AppendFrame(nil, &Embedding{ID: 1, Vector: Vector{1}})
	if err != nil {
		t.Fatal(err)
	}
	whole := []byte("\xc4\x04\x00\x00\x80\x3f")
	if _, err := DecodeReply(frame[headerBytes:]); err != nil || !bytes.Contains(frame, whole) {
		t.Fatalf("% x: %v", frame, err)
	}
	half := bytes.Replace(frame, whole, []byte("\xc4\x03\x00\x00\x80"), 1)
	if _, err := DecodeReply(half[headerBytes:]); code(err) != CodeBadMessage {
		t.Errorf("three bytes: %v, want %s", err, CodeBadMessage)
	}
}
