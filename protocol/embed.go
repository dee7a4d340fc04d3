package protocol

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// Embed requests the embedding of one text, of a model that is meant for embeddings. Exactly one of Prompt and Tokens
// is given; a nil pointer means the default. It was added to version 1.
type Embed struct {
	Type string `msgpack:"type"`
	// ID is chosen by the client and unique among its running requests, those of generate included.
	ID     uint64   `msgpack:"id"`
	Prompt *string  `msgpack:"prompt,omitempty"`
	Tokens TokenIDs `msgpack:"tokens,omitempty"`
	// Special is like that of Generate.
	Special *bool `msgpack:"special,omitempty"`
	// PromptName names one of the model's own prompts, which comes before Prompt; nil: the model's default, "": none.
	PromptName *string `msgpack:"prompt_name,omitempty"`
	// Normalize gives the vector the length 1; nil: as the model's own pipeline does.
	Normalize *bool `msgpack:"normalize,omitempty"`
	// Dimensions asks for that many leading elements of the vector; nil: all.
	Dimensions *int `msgpack:"dimensions,omitempty"`
	// Truncate cuts a text that does not fit the context; without it the text is refused.
	Truncate bool `msgpack:"truncate,omitempty"`
	// Cache and User are like those of Generate.
	Cache *string `msgpack:"cache,omitempty"`
	User  *string `msgpack:"user,omitempty"`
}

// Embedding answers embed. Its JSON form has neither type nor id.
type Embedding struct {
	Type   string `msgpack:"type" json:"-"`
	ID     uint64 `msgpack:"id" json:"-"`
	Vector Vector `msgpack:"vector" json:"embedding"`
	Usage  Usage  `msgpack:"usage" json:"usage"`
	Timing Timing `msgpack:"timing" json:"timing"`
	Graphs Graphs `msgpack:"graphs" json:"graphs"`
}

// Vector is the elements of an embedding. On the wire it is binary: float32, little-endian, one after another.
type Vector []float32

// EncodeMsgpack writes the elements as binary.
func (v Vector) EncodeMsgpack(enc *msgpack.Encoder) error {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return enc.EncodeBytes(b)
}

// DecodeMsgpack reads binary of whole elements.
func (v *Vector) DecodeMsgpack(dec *msgpack.Decoder) error {
	b, err := dec.DecodeBytes()
	if err != nil {
		return err
	}
	if len(b)%4 != 0 {
		return fmt.Errorf("protocol: a vector of %d bytes, not a multiple of 4", len(b))
	}
	*v = make(Vector, len(b)/4)
	for i := range *v {
		(*v)[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}

// Embeddings says, in welcome, that the model is meant for embeddings: it answers embed, and refuses generate.
type Embeddings struct {
	Dimensions int `msgpack:"dimensions" json:"dimensions"` // elements of a vector
	// Least is the fewest dimensions that embed may ask for.
	Least int `msgpack:"least" json:"least"`
	// Normalized means that vectors have the length 1 by default.
	Normalized bool `msgpack:"normalized" json:"normalized"`
	// Prompts are the names of the model's own prompts.
	Prompts []string `msgpack:"prompts,omitempty" json:"prompts,omitempty"`
}

// Validate checks every field against the bounds of PROTOCOL.md, l and m, without tokenizing. The error names the field
// and carries the request's id; its code is CodePromptTooLong or CodeBadRequest.
func (e *Embed) Validate(l Limits, m Embeddings) *Error {
	g := Generate{Cache: e.Cache, User: e.User}
	for _, found := range []*Error{e.checkPrompt(l), e.checkTokens(l), e.checkDimensions(m), g.checkCache(l),
		g.checkUser(l)} {
		if found != nil {
			return found.For(e.ID)
		}
	}
	return nil
}

// checkPrompt checks that one kind of prompt is given, and the length of a text.
func (e *Embed) checkPrompt(l Limits) *Error {
	const hint = "give one of prompt, a text, and tokens, a list of token ids"
	switch {
	case e.Prompt != nil && e.Tokens != nil:
		return Errorf(CodeBadRequest, hint, "both prompt and tokens are given")
	case e.Prompt == nil && e.Tokens == nil:
		return Errorf(CodeBadRequest, hint, "neither prompt nor tokens is given")
	case e.Prompt == nil && (e.Special != nil || e.PromptName != nil):
		return Errorf(CodeBadRequest, "leave it out", "special or prompt_name is given without prompt")
	case e.Prompt == nil:
		return nil
	case *e.Prompt == "":
		return Errorf(CodeBadRequest, hint, "prompt is empty")
	}
	return checkText("prompt", len(*e.Prompt), l)
}

func (e *Embed) checkTokens(l Limits) *Error {
	if e.Tokens == nil {
		return nil
	}
	if len(e.Tokens) == 0 {
		return Errorf(CodeBadRequest, "give at least one token", "tokens is empty")
	}
	if !e.Truncate {
		if found := CheckTextTokens(len(e.Tokens), l); found != nil {
			return found
		}
	}
	return checkIDs(e.Tokens, l)
}

// CheckTextTokens returns an error, without an id, if a text of n tokens does not fit the context. A generator calls it
// after tokenizing.
func CheckTextTokens(n int, l Limits) *Error {
	if n <= l.Context {
		return nil
	}
	return Errorf(CodePromptTooLong, "shorten the text, or ask for it to be cut with truncate",
		"the text has %d tokens: the context holds %d", n, l.Context)
}

func (e *Embed) checkDimensions(m Embeddings) *Error {
	n := or(e.Dimensions, m.Dimensions)
	if n >= m.Least && n <= m.Dimensions {
		return nil
	}
	if m.Least == m.Dimensions {
		return Errorf(CodeBadRequest, "leave it out",
			"dimensions is %d: the model's vectors have %d, and it was not trained for fewer", n, m.Dimensions)
	}
	return outOfBounds("dimensions", n, m.Least, m.Dimensions)
}
