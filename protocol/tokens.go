package protocol

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// TokenIDs is a list of token ids. It is on the wire what []int32 is, but for whose elements msgpack
// takes several times as long, which the first token of a long prompt waits for.
type TokenIDs []int32

// EncodeMsgpack writes the list as compact integers.
func (t TokenIDs) EncodeMsgpack(enc *msgpack.Encoder) error {
	b := appendArray(make([]byte, 0, 5+3*len(t)), len(t))
	for _, id := range t {
		b = appendInt(b, int64(id))
	}
	_, err := enc.Writer().Write(b)
	return err
}

// DecodeMsgpack reads a list of up to MaxElements whole numbers.
func (t *TokenIDs) DecodeMsgpack(dec *msgpack.Decoder) error {
	n, err := dec.DecodeArrayLen()
	if err != nil || n < 0 {
		*t = nil
		return err
	}
	if n > MaxElements {
		return fmt.Errorf("protocol: a list of %d token ids, at most %d", n, MaxElements)
	}
	*t = make(TokenIDs, n)
	for i := range *t {
		if (*t)[i], err = dec.DecodeInt32(); err != nil {
			return err
		}
	}
	return nil
}
