package protocol

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// encoded returns msg as msgpack's own encoder writes it.
func encoded(t *testing.T, msg any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	if err := enc.Encode(msg); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTokenIsEncodedAsMsgpackDoes(t *testing.T) {
	lengths := []int{0, 1, 31, 32, 255, 256, 65535, 65536}
	ids := []uint64{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64}
	indices := []int{0, -1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, 300}
	for i := range 110 {
		token := &Token{Type: TypeToken, ID: ids[i%len(ids)], Index: indices[i%len(indices)],
			Token: int32(i * 1000), Text: strings.Repeat("x", lengths[i%len(lengths)])}
		if i%3 > 0 {
			token.Logprob = ptr(-float64(i) / 7)
		}
		for k := range []int{0, 1, 15, 16, 20}[i%5] {
			token.Top = append(token.Top, TopToken{Token: int32(k), Text: "t", Logprob: -float64(k)})
		}
		if got, want := appendToken(nil, token), encoded(t, token); !bytes.Equal(got, want) {
			t.Fatalf("case %d: %.80x, want %.80x", i, got, want)
		}
	}
}

func TestListLengthsAreEncodedAsMsgpackDoes(t *testing.T) {
	for _, n := range []int{0, 15, 16, 65535, 65536} {
		var b bytes.Buffer
		if err := msgpack.NewEncoder(&b).EncodeArrayLen(n); err != nil {
			t.Fatal(err)
		}
		if got := appendArray(nil, n); !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%d: %x, want %x", n, got, b.Bytes())
		}
	}
}

func TestAppendFrameAppends(t *testing.T) {
	b := []byte("before")
	for range 2 {
		var err error
		if b, err = AppendFrame(b, &Cancel{ID: 1}); err != nil {
			t.Fatal(err)
		}
	}
	one := frame(pairs("type", text("cancel"), "id", "\x01"))
	if want := "before" + string(one) + string(one); string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}

func TestAppendFrameRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxFrame)
	for _, c := range []struct {
		msg  any
		want error
	}{
		{&Tokenize{Text: long}, ErrFrameTooLarge},
		{&Token{Text: long}, ErrFrameTooLarge},
		{Hello{}, ErrNotMessage},
		{nil, ErrNotMessage},
		{&Limits{}, ErrNotMessage},
	} {
		b, err := AppendFrame([]byte("before"), c.msg)
		if !errors.Is(err, c.want) || string(b) != "before" {
			t.Errorf("%T: %d bytes, %v, want %v", c.msg, len(b), err, c.want)
		}
	}
}

// TestAppendFrameLeavesTheMessage: AppendFrame does not change a message that goes to
// several connections.
func TestAppendFrameLeavesTheMessage(t *testing.T) {
	e := &Error{Code: CodeBusy, Message: "busy"}
	if _, err := AppendFrame(nil, e); err != nil || e.Type != "" {
		t.Errorf("%v, type %q", err, e.Type)
	}
}

// TestNoTokensIsAList: an empty list is encoded as a list, since readers refuse nil there.
func TestNoTokensIsAList(t *testing.T) {
	b, err := AppendFrame(nil, &Tokens{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeReply(b[headerBytes:]); err != nil {
		t.Error(err)
	}
}

func TestTokenFrameAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	token := &Token{ID: 7, Index: 3, Token: 1234, Text: " word", Logprob: ptr(-0.5)}
	if n := testing.AllocsPerRun(100, func() { _, _ = AppendFrame(buf, token) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppendFrameToken(b *testing.B) {
	buf := make([]byte, 0, 4096)
	token := &Token{ID: 7, Index: 300, Token: 1234, Text: " word"}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = AppendFrame(buf, token)
	}
}

func BenchmarkAppendFrameDone(b *testing.B) {
	buf := make([]byte, 0, 4096)
	done := &Done{ID: 7, FinishReason: FinishStop}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = AppendFrame(buf, done)
	}
}

func BenchmarkDecodeReplyToken(b *testing.B) {
	frame, _ := AppendFrame(nil, &Token{ID: 7, Index: 300, Token: 1234, Text: " word"})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = DecodeReply(frame[headerBytes:])
	}
}
