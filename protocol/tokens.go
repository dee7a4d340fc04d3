package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/vmihailenco/msgpack/v5"
)

// TokenIDs is a list of token ids. It has the same form on the wire as []int32, for which
// msgpack takes several times as long; the first token of a long prompt waits for that.
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

// DecodeMsgpack reads a list of at most MaxElements whole numbers.
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
	for left := *t; len(left) > 0; {
		some := decodeSome(dec, left)
		if some == 0 {
			if left[0], err = dec.DecodeInt32(); err != nil {
				return err
			}
			some = 1
		}
		left = left[some:]
	}
	return nil
}

// decodeSome reads consecutive ids in one go and returns their number, which may be 0. It
// needs a dec that reads from memory without a buffer of its own, as msgpack.NewDecoder
// makes for a bytes.Reader.
func decodeSome(dec *msgpack.Decoder, ids []int32) (items int) {
	r, ok := dec.Buffered().(*bytes.Reader)
	if !ok {
		return 0
	}
	var ahead [4096]byte
	at := r.Size() - int64(r.Len())
	n, _ := r.ReadAt(ahead[:], at) // fewer at the end
	b := ahead[:n]
	for items < len(ids) {
		for items+atOnce <= len(ids) && areNumbersOf2(b) {
			readNumbersOf2((*[atOnce]int32)(ids[items:]), (*[3 * atOnce]byte)(b))
			items, b = items+atOnce, b[3*atOnce:]
		}
		if items == len(ids) {
			break
		}
		if len(b) > 2 && b[0] == wholeOf2 { // most token ids
			ids[items] = int32(b[1])<<8 | int32(b[2])
			items, b = items+1, b[3:]
			continue
		}
		num, size := readWhole(b)
		if size == 0 || num > math.MaxInt32 {
			break
		}
		ids[items] = int32(num)
		items, b = items+1, b[size:]
	}
	_, _ = r.Seek(at+int64(n-len(b)), io.SeekStart) // never before the beginning
	return items
}

// readNumbersOf2 reads whole numbers of two bytes, two from a word: each is a head, and a number in big-endian order.
func readNumbersOf2(ids *[atOnce]int32, b *[3 * atOnce]byte) {
	for i := range 3 {
		word := binary.BigEndian.Uint64(b[6*i:])
		ids[2*i], ids[2*i+1] = int32(word>>40&math.MaxUint16), int32(word>>16&math.MaxUint16)
	}
	last := binary.BigEndian.Uint64(b[3*atOnce-8:]) // the two last numbers end the word
	ids[6], ids[7] = int32(last>>24&math.MaxUint16), int32(last&math.MaxUint16)
}
