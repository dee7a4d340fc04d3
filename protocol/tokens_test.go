package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vmihailenco/msgpack/v5"
)

// TestTokenIDs: token ids have the same encoding as msgpack's for a slice, for all lengths
// and values, and are decoded from each encoding of a whole number.
func TestTokenIDs(t *testing.T) {
	edges := []int32{
		0, 1, -1, 0x7f, 0x80, -32, -33, 0xff, 0x100, -0x80, -0x81, 0xffff, 0x10000, math.MaxInt32, math.MinInt32,
	}
	for _, n := range []int{0, 1, 15, 16, 400, 0xffff, 0x10000} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = edges[rand.IntN(len(edges))]
		}
		var want, wide bytes.Buffer
		compact := msgpack.NewEncoder(&want)
		compact.UseCompactInts(true)
		if err := compact.Encode(map[string][]int32{"tokens": ids}); err != nil {
			t.Fatal(err)
		}
		if err := msgpack.NewEncoder(&wide).Encode(map[string][]int32{"tokens": ids}); err != nil {
			t.Fatal(err)
		}
		got, err := msgpack.Marshal(map[string]TokenIDs{"tokens": ids})
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%d ids: %v, or the bytes differ from those of a slice", n, err)
		}
		for _, body := range [][]byte{want.Bytes(), wide.Bytes()} {
			var back struct {
				Tokens TokenIDs `msgpack:"tokens"`
			}
			err := msgpack.Unmarshal(body, &back)
			if err != nil || back.Tokens == nil || !slices.Equal(back.Tokens, ids) {
				t.Fatalf("%d ids are decoded differently: %v", n, err)
			}
			// From this reader the decoder gets only the bytes that it asks for.
			back.Tokens = nil
			err = msgpack.NewDecoder(iotest.OneByteReader(bytes.NewReader(body))).Decode(&back)
			if err != nil || !slices.Equal(back.Tokens, ids) {
				t.Fatalf("%d ids are decoded differently byte by byte: %v", n, err)
			}
		}
	}
}

// TestRunsOfTokenIDs: numbers of two bytes, which are read some at once, are counted and read as one by one: in runs of
// any length among others, cut at any byte, and with any byte changed.
func TestRunsOfTokenIDs(t *testing.T) {
	for range 300 {
		var ids []int32
		for range 1 + rand.IntN(4) {
			for range rand.IntN(40) {
				ids = append(ids, int32(0x100+rand.IntN(0xff00)))
			}
			ids = append(ids, []int32{5, 0xcd, 0xcdcd, 0x10000, math.MaxInt32}[rand.IntN(5)])
		}
		body, err := msgpack.Marshal(TokenIDs(ids))
		var back TokenIDs
		if err := errors.Join(err, msgpack.Unmarshal(body, &back)); err != nil || !slices.Equal(back, ids) {
			t.Fatalf("%v are decoded as %v, %v", ids, back, err)
		}
		body = slices.Clone(body[rand.IntN(len(body)):])
		for range 50 {
			most, cut := rand.IntN(len(ids)+2), rand.IntN(len(body)+1)
			items, size := 0, 0
			for items < most {
				_, n := readWhole(body[size:cut])
				if n == 0 {
					break
				}
				items, size = items+1, size+n
			}
			if i, n := wholeNumbers(body[:cut], most); i != items || n != size {
				t.Fatalf("%x has %d numbers in %d bytes, wants %d in %d", body[:cut], i, n, items, size)
			}
			body[rand.IntN(len(body))] ^= byte(1 << rand.IntN(8) * rand.IntN(2))
		}
	}
}

// TestTokenIDsOfNilAndTooMany: nil gives nil, and a list longer than the bound is refused
// before memory is allocated for it.
func TestTokenIDsOfNilAndTooMany(t *testing.T) {
	ids := TokenIDs{1}
	if err := msgpack.Unmarshal([]byte{0xc0}, &ids); err != nil || ids != nil {
		t.Errorf("nil gives %v, %v", ids, err)
	}
	if err := msgpack.Unmarshal([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, &ids); err == nil {
		t.Error("a list of 2³²-1 ids was accepted")
	}
}

// TestInvalidTokenIDs: the fast path and decoding id by id give the same result for lists
// with other elements.
func TestInvalidTokenIDs(t *testing.T) {
	for _, list := range []string{
		"\x93\x01\xce\x80\x00\x00\x00\x02", "\x93\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x02",
		"\x92\x01\xcb\x40\x00\x00\x00\x00\x00\x00\x00",
		"\x92\x01\xc0", "\x92\x01\xd1\x80\x00", "\x92\x01\xcd\x01", "\x92\x01", "\x92\x01\xa1a",
	} {
		var some, one TokenIDs
		err := msgpack.Unmarshal([]byte(list), &some)
		want := msgpack.NewDecoder(iotest.OneByteReader(strings.NewReader(list))).Decode(&one)
		if fmt.Sprint(err) != fmt.Sprint(want) || !slices.Equal(some, one) {
			t.Errorf("%x: %v, %v; id by id %v, %v", list, some, err, one, want)
		}
	}
}

// TestTokenIDsBeyondTheBody: Scan refuses a body that declares more ids than it has bytes.
func TestTokenIDsBeyondTheBody(t *testing.T) {
	body := pairs("type", text("generate"), "id", "\x01", "tokens", "\xdd\xff\xff\xff\xff")
	for _, decode := range []func([]byte) (any, error){DecodeRequest, DecodeReply} {
		if _, err := decode(body); code(err) != CodeBadFrame {
			t.Errorf("%v, want %s", err, CodeBadFrame)
		}
	}
}

// BenchmarkGenerate measures encoding and decoding a request with a long prompt.
func BenchmarkGenerate(b *testing.B) {
	for _, n := range []int{10, 400, 100_000} {
		g := &Generate{ID: 1, MaxTokens: new(17), IgnoreEOS: true}
		for i := range n {
			g.Tokens = append(g.Tokens, int32(i*7919%32000))
		}
		frame, err := AppendFrame(nil, g)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("encode-%d", n), func(b *testing.B) {
			for b.Loop() {
				frame, _ = AppendFrame(frame[:0], g)
			}
		})
		b.Run(fmt.Sprintf("decode-%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := DecodeRequest(frame[headerBytes:]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
