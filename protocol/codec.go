package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// form holds the schema of one message type and a constructor of its Go value.
type form struct {
	schema *schema
	create func() any
}

func formOf[M any]() form {
	return form{schemaOf(reflect.TypeFor[M]()), func() any { return new(M) }}
}

var requests = map[string]form{
	TypeHello:    formOf[Hello](),
	TypeGenerate: formOf[Generate](),
	TypeCancel:   formOf[Cancel](),
	TypeStatus:   formOf[StatusRequest](),
	TypeTokenize: formOf[Tokenize](),
	TypeCache:    formOf[CacheRequest](),
	TypeEmbed:    formOf[Embed](),
	TypeSleep:    formOf[SleepRequest](),
}

var replies = map[string]form{
	TypeWelcome: formOf[Welcome](),
	TypeToken:   formOf[Token](),
	TypeDone:    formOf[Done](),
	TypeError:   formOf[Error](),
	TypeStatus:  formOf[Status](),
	TypeTokens:  formOf[Tokens](),
	TypeCached:  formOf[Cached](),

	TypeEmbedding: formOf[Embedding](),
	TypeSleeping:  formOf[Sleeping](),
}

// DecodeRequest decodes a client's message into a *Hello, *Generate, *Cancel,
// *StatusRequest, *Tokenize, *CacheRequest, *Embed or *SleepRequest. The error is always an *[Error], and carries the
// request's id if the body has a readable one. Its code is CodeBadFrame for bad structure,
// CodeUnknownType, CodeBadMessage for a field that is missing, repeated or of the wrong
// type, or CodePromptTooLong or CodeBadRequest for a list that is too long. The result
// does not refer to body.
func DecodeRequest(body []byte) (any, error) { return decode(body, requests, Limits{}) }

// DecodeRequest is like the function [DecodeRequest], but refuses a text longer than
// l.PromptBytes with CodePromptTooLong before it copies the text. A generator uses it
// once it knows its limits.
func (l Limits) DecodeRequest(body []byte) (any, error) { return decode(body, requests, l) }

// DecodeReply decodes a generator's message into a *Welcome, *Token, *Done, *Error,
// *Status, *Tokens, *Cached, *Embedding or *Sleeping. The error is an *[Error] as in [DecodeRequest]. The result does not
// refer to body.
func DecodeReply(body []byte) (any, error) { return decode(body, replies, Limits{}) }

func decode(body []byte, forms map[string]form, l Limits) (any, error) {
	if err := Scan(body); err != nil {
		return nil, FrameError(err)
	}
	h := peek(body)
	f, known := forms[h.typ]
	if !known {
		return nil, unknownType(h.typ).withID(h.id)
	}
	if e := f.schema.check(&walker{body}); e != nil {
		return nil, e.protocol(h.typ).withID(h.id)
	}
	if l.PromptBytes > 0 {
		if e := checkText(h.textField, h.textBytes, l); e != nil {
			return nil, e.withID(h.id)
		}
	}
	msg := f.create()
	if err := unmarshal(body, msg); err != nil {
		return nil, Errorf(CodeBadMessage, "", "%s: %v", h.typ, err).withID(h.id)
	}
	return msg, nil
}

// unmarshal decodes a checked body. msgpack's pooled decoders keep a buffer as long as
// the longest string they met, so a large body gets a decoder of its own, which is then
// garbage. That decoder allocates a string's buffer at once instead of doubling it,
// since Scan has verified that the bytes are there.
func unmarshal(body []byte, msg any) error {
	if len(body) <= smallFrame {
		return msgpack.Unmarshal(body, msg)
	}
	dec := msgpack.NewDecoder(bytes.NewReader(body))
	dec.DisableAllocLimit(true)
	return dec.Decode(msg)
}

// header is the part of a body that decode reads first.
type header struct {
	typ       string
	id        *uint64 // nil if there is no readable one
	textField string  // prompt, text or messages
	textBytes int
}

// peek reads the header of a body that Scan has passed.
func peek(body []byte) header {
	var h header
	w := &walker{body}
	for range w.next().n {
		key := string(w.str(w.next()))
		value, _ := readItem(w.b)
		switch {
		case key == "type" && value.kind == kindStr && h.typ == "":
			h.typ = string(w.b[value.size : value.size+value.n])
		case key == "id" && value.kind == kindUint && h.id == nil:
			h.id = &value.num
		case (key == "prompt" || key == "text") && value.kind == kindStr:
			h.textField, h.textBytes = key, value.n
		case key == "messages" && value.kind == kindArray:
			h.textField, h.textBytes = key, contentBytes(w.b)
		}
		w.skip()
	}
	return h
}

// PeekID returns the request id in the first bytes of a body that was not scanned, or nil
// if they do not contain one.
func PeekID(head []byte) *uint64 {
	top, err := readItem(head)
	if err != nil || top.kind != kindMap {
		return nil
	}
	at := top.size
	for range top.n {
		name, err := readItem(head[at:])
		end := at + name.size + name.body()
		if err != nil || name.kind != kindStr || end >= len(head) {
			return nil
		}
		if string(head[at+name.size:end]) == "id" {
			value, err := readItem(head[end:])
			if err != nil || value.kind != kindUint {
				return nil
			}
			return &value.num
		}
		if at = end + valueBytes(head[end:]); at >= len(head) {
			return nil
		}
	}
	return nil
}

// valueBytes returns the length of the value at the start of b, or more than len(b) if b
// does not contain all of it.
func valueBytes(b []byte) (at int) {
	for items := 1; items > 0; items-- {
		if at >= len(b) {
			return len(b) + 1
		}
		it, err := readItem(b[at:])
		if err != nil {
			return len(b) + 1
		}
		at += it.size + it.body()
		items += it.children()
	}
	return at
}

// contentBytes returns the total bytes of content and reasoning in the list of messages at the start of b.
func contentBytes(b []byte) (bytes int) {
	w := &walker{b}
	for range w.next().n {
		message := &walker{w.b}
		if head := message.next(); head.kind == kindMap {
			for range head.n {
				key := string(message.str(message.next()))
				if value, _ := readItem(message.b); (key == "content" || key == "reasoning") && value.kind == kindStr {
					bytes += value.n
				}
				message.skip()
			}
		}
		w.skip()
	}
	return bytes
}

func unknownType(typ string) *Error {
	if typ == "" {
		return Errorf(CodeBadMessage, "put the message's type, a string, in the field type", "the message has no type")
	}
	return Errorf(CodeUnknownType, "this generator may be older than the client", "unknown message type %.64q", typ)
}

// protocol returns the error to send to the peer.
func (e *fieldError) protocol(typ string) *Error {
	hint := "see the table of " + typ + "'s fields in PROTOCOL.md"
	switch {
	case e.code == CodeBadRequest && e.path == "tokens":
		return Errorf(CodePromptTooLong, "shorten the prompt", "%s: %v", typ, e)
	case e.code != "":
		return Errorf(e.code, hint, "%s: %v", typ, e)
	}
	return Errorf(CodeBadMessage, hint, "%s: %v", typ, e)
}

// FrameError returns the error to send for an error of [FrameReader.Next], [ReadFrame] or
// [Scan]. It returns nil for errors of the connection, on which nothing can be sent.
func FrameError(err error) *Error {
	const hint = "a frame is a 4-byte big-endian length and one msgpack map of that many bytes"
	switch {
	case errors.Is(err, ErrStructure), errors.Is(err, ErrFrameTooLarge), errors.Is(err, ErrFrameEmpty):
		return Errorf(CodeBadFrame, hint, "%v", err)
	case errors.Is(err, ErrOverloaded):
		return Errorf(CodeOverloaded, "send it again in a moment", "%v", err)
	}
	return nil
}

// withID returns e with an id, which may be nil.
func (e *Error) withID(id *uint64) *Error {
	e.ID = id
	return e
}

// notMessage returns the error for a Go value that is no message.
func notMessage(msg any) error { return fmt.Errorf("%w: %T", ErrNotMessage, msg) }
