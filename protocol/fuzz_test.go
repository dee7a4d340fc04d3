package protocol

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"testing/iotest"
	"time"
)

// seeds adds the first inputs of every fuzz target: the golden frames, bodies that the
// scanner refuses, and bodies that would end an unguarded decoder. testdata/fuzz contains
// the short ones as files too.
func seeds(f *testing.F) {
	for _, g := range goldens {
		if g.msg == nil {
			f.Add([]byte(g.body))
			continue
		}
		b, err := AppendFrame(nil, g.msg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[headerBytes:])
	}
	for _, c := range refused {
		if len(c.body) < 1000 {
			f.Add([]byte(c.body))
		}
	}
	for _, c := range hostile {
		f.Add(c.body)
	}
	f.Add(pairs("x", everyFormat()))
}

func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		if err := Scan(body); err != nil {
			if !errors.Is(err, ErrStructure) {
				t.Errorf("%v does not wrap ErrStructure", err)
			}
			return
		}
		if !bytes.Equal(body, before) {
			t.Error("Scan wrote to the body")
		}
		w := &walker{body} // reads a body that Scan has passed, up to its end
		w.skip()
		if len(w.b) != 0 {
			t.Errorf("%d bytes left", len(w.b))
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		msg := fuzzDecode(t, body, DecodeRequest)
		if g, ok := msg.(*Generate); ok && g.Validate(testLimits) == nil {
			checkParams(t, g.Params())
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, body []byte) { fuzzDecode(t, body, DecodeReply) })
}

// fuzzDecode checks properties of any body: the memory is proportional to it, the result
// is an *Error or a message, and encoding and decoding the message again changes nothing.
func fuzzDecode(t *testing.T, body []byte, decode func([]byte) (any, error)) any {
	before := allocated()
	msg, err := decode(body)
	if took := allocated() - before; took > 64*uint64(len(body))+1<<20 {
		t.Errorf("%d bytes took %d", len(body), took)
	}
	if err != nil {
		if code(err) == "" {
			t.Errorf("%v is not an *Error", err)
		}
		return nil
	}
	first := reencode(t, msg)
	again, err := decode(first)
	if err != nil {
		t.Fatalf("the encoded message is refused: %v", err)
	}
	if second := reencode(t, again); !bytes.Equal(first, second) {
		t.Errorf("%x, then %x", first, second)
	}
	if reflect.TypeOf(msg) != reflect.TypeOf(again) {
		t.Errorf("%T, then %T", msg, again)
	}
	return msg
}

func reencode(t *testing.T, msg any) []byte {
	b, err := AppendFrame(nil, msg)
	if errors.Is(err, ErrFrameTooLarge) {
		t.Skip("floats take 9 bytes each, which made the body too large")
	}
	if err != nil {
		t.Fatal(err)
	}
	return b[headerBytes:]
}

// checkParams checks properties that a sampler relies on.
func checkParams(t *testing.T, p Params) {
	for _, v := range []float64{p.Temperature, p.TopP, p.MinP, p.RepeatPenalty} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Errorf("%+v", p)
		}
	}
	if p.MaxTokens < 1 || p.TopK < 0 || p.TopP == 0 || p.RepeatPenalty == 0 || p.Logprobs < 0 {
		t.Errorf("%+v", p)
	}
}

// FuzzReadFrame reads a stream of head, fill zero bytes, and tail. The zeros stand for
// large bodies: with a corpus of long inputs the fuzzer would spend up to a minute each on
// minimizing them byte by byte.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03abc\x00\x00\x00\x01d"), uint16(0), []byte{})
	f.Add([]byte("\x00\x00\x00\x00"), uint16(0), []byte{})
	f.Add([]byte("\xff\xff\xff\xff"), uint16(0), []byte{})
	f.Add([]byte("\x00\x01\x00\x00abc"), uint16(0), []byte{})
	f.Add([]byte("\x00\x00\x00\x05\xdd\xff\xff\xff\xff"), uint16(0), []byte{})
	f.Add([]byte("\x00\x00\x30\x00"), uint16(3*smallFrame), []byte("\x00\x00\x00\x01d"))
	f.Add([]byte("\x00\x01\x00\x00"), uint16(1<<16-1), []byte("abc"))
	f.Fuzz(func(t *testing.T, head []byte, fill uint16, tail []byte) {
		checkStream(t, slices.Concat(head, make([]byte, fill), tail))
	})
}

// checkStream checks properties of any stream: the frames read are those in it, memory is
// proportional to it, and the whole budget is returned.
func checkStream(t *testing.T, stream []byte) {
	const limit = 1 << 16 // of a body and of the budget; large enough for mapped frames
	budget := &allowance{limit: limit}
	r := &FrameReader{R: iotest.HalfReader(bytes.NewReader(stream)), Max: limit, Budget: budget}
	var frames []byte
	body, err := r.Next()
	for ; err == nil; body, err = r.Next() {
		frames = append(frames, frame(body)...)
	}
	if !bytes.HasPrefix(stream, frames) {
		t.Error("the frames differ from the stream")
	}
	if err == io.EOF && len(frames) != len(stream) {
		t.Errorf("ended after %d of %d bytes", len(frames), len(stream))
	}
	if len(stream) <= smallFrame && budget.used != 0 {
		t.Errorf("%d bytes hold %d of the budget", len(stream), budget.used)
	}
	if r.mapped == nil && len(r.buf) > max(smallFrame, 4*len(stream)) {
		t.Errorf("%d bytes take %d", len(stream), len(r.buf))
	}
	if r.Release(); budget.used != 0 {
		t.Errorf("%d bytes held at the end", budget.used)
	}
}

// TestStreamsOfManySizes reads random bytes in frames around the sizes at which a reader
// grows or maps memory. The fuzzer's zeros would not reveal misplaced bytes.
func TestStreamsOfManySizes(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	for _, size := range []int{1, smallFrame, 4 * smallFrame, mappedFrame} {
		for _, n := range []int{size - 1, size, size + 1} {
			body := make([]byte, n)
			random.Read(body)
			checkStream(t, append(frame(body), frame(body)...))
			checkStream(t, frame(body)[:headerBytes+random.Intn(n+1)])
		}
	}
}
