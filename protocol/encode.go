package protocol

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// AppendFrame appends the frame of msg, a pointer to one of this package's messages, to
// dst. It sets the field Type from msg's Go type. A *Token is written without allocation
// if dst has room. Errors are ErrNotMessage and ErrFrameTooLarge; dst is then returned
// unchanged.
func AppendFrame(dst []byte, msg any) ([]byte, error) {
	start := len(dst)
	out := append(dst, 0, 0, 0, 0)
	var err error
	if t, ok := msg.(*Token); ok {
		out = appendToken(out, t)
	} else {
		out, err = appendMessage(out, msg)
	}
	n := len(out) - start - headerBytes
	if err == nil && n > MaxFrame {
		err = fmt.Errorf("%w: %d bytes to send, %d allowed", ErrFrameTooLarge, n, MaxFrame)
	}
	if err != nil {
		return dst, err
	}
	binary.BigEndian.PutUint32(out[start:], uint32(n))
	return out, nil
}

// appendMessage encodes a message with msgpack.
func appendMessage(dst []byte, msg any) ([]byte, error) {
	typed := withType(msg)
	if typed == nil {
		return dst, notMessage(msg)
	}
	w := &appender{dst}
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(w)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true) // the same message has the same bytes
	err := enc.Encode(typed)
	return w.b, err
}

// appender is an io.Writer that appends to a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// withType returns a copy of msg with its type set, or nil if msg is no message. It copies
// because one Error may be sent to several connections at once.
func withType(msg any) any {
	switch m := msg.(type) {
	case *Hello:
		return set(*m, func(c *Hello) { c.Type = TypeHello })
	case *Generate:
		return set(*m, func(c *Generate) { c.Type = TypeGenerate })
	case *Cancel:
		return set(*m, func(c *Cancel) { c.Type = TypeCancel })
	case *StatusRequest:
		return set(*m, func(c *StatusRequest) { c.Type = TypeStatus })
	case *Tokenize:
		return set(*m, func(c *Tokenize) { c.Type = TypeTokenize })
	case *CacheRequest:
		return set(*m, func(c *CacheRequest) { c.Type = TypeCache })
	case *Embed:
		return set(*m, func(c *Embed) { c.Type = TypeEmbed })
	case *Embedding:
		return set(*m, func(c *Embedding) { c.Type = TypeEmbedding })
	case *SleepRequest:
		return set(*m, func(c *SleepRequest) { c.Type = TypeSleep })
	case *Welcome:
		return set(*m, func(c *Welcome) { c.Type = TypeWelcome })
	case *Done:
		return set(*m, func(c *Done) { c.Type = TypeDone })
	case *Error:
		return set(*m, func(c *Error) { c.Type = TypeError })
	case *Status:
		return set(*m, func(c *Status) { c.Type = TypeStatus })
	case *Cached:
		return set(*m, func(c *Cached) { c.Type, c.Tiers = TypeCached, append([]CacheTier{}, c.Tiers...) })
	case *Sleeping:
		return set(*m, func(c *Sleeping) { c.Type = TypeSleeping })
	case *Tokens:
		return set(*m, func(c *Tokens) { c.Type, c.Tokens = TypeTokens, append(TokenIDs{}, c.Tokens...) })
	}
	return nil
}

func set[M any](copied M, change func(*M)) any {
	change(&copied)
	return &copied
}

// appendToken writes the same bytes as msgpack's encoder would, but faster: tokens are on
// the hot path.
func appendToken(b []byte, t *Token) []byte {
	fields := byte(5)
	if t.Logprob != nil {
		fields++
	}
	if len(t.Top) > 0 {
		fields++
	}
	if t.Reasoning != "" {
		fields++
	}
	if len(t.Calls) > 0 {
		fields++
	}
	b = append(b, 0x80|fields)
	b = appendString(appendString(b, "type"), TypeToken)
	b = appendUint(appendString(b, "id"), t.ID)
	b = appendInt(appendString(b, "index"), int64(t.Index))
	b = appendInt(appendString(b, "token"), int64(t.Token))
	b = appendString(appendString(b, "text"), t.Text)
	if t.Logprob != nil {
		b = appendFloat(appendString(b, "logprob"), *t.Logprob)
	}
	if len(t.Top) > 0 {
		b = appendTop(appendString(b, "top"), t.Top)
	}
	if t.Reasoning != "" {
		b = appendString(appendString(b, "reasoning"), t.Reasoning)
	}
	if len(t.Calls) > 0 {
		b = appendCalls(appendString(b, "calls"), t.Calls)
	}
	return b
}

func appendCalls(b []byte, calls []CallPiece) []byte {
	b = appendArray(b, len(calls))
	for _, c := range calls {
		at := len(b)
		b = appendInt(appendString(append(b, 0x81), "index"), int64(c.Index))
		for _, f := range [...]struct{ name, text string }{{"id", c.ID}, {"name", c.Name}, {"arguments", c.Arguments}} {
			if f.text != "" {
				b = appendString(appendString(b, f.name), f.text)
				b[at]++
			}
		}
	}
	return b
}

func appendTop(b []byte, top []TopToken) []byte {
	b = appendArray(b, len(top))
	for i := range top {
		b = append(b, 0x83)
		b = appendInt(appendString(b, "token"), int64(top[i].Token))
		b = appendString(appendString(b, "text"), top[i].Text)
		b = appendFloat(appendString(b, "logprob"), top[i].Logprob)
	}
	return b
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(f))
}

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v <= 0x7f:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}
