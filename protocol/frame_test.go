package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// frame returns body with its header.
func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestReadFrame(t *testing.T) {
	for _, n := range []int{1, smallFrame - 1, smallFrame, smallFrame + 1, 100_000, MaxFrame} {
		body := bytes.Repeat([]byte{7}, n)
		stream := bytes.NewReader(append(frame(body), "rest"...))
		got, err := ReadFrame(stream, MaxFrame, nil)
		if err != nil || !bytes.Equal(got, body) || stream.Len() != len("rest") {
			t.Errorf("%d bytes: got %d, %v, left %d", n, len(got), err, stream.Len())
		}
	}
}

func TestReadFrameUsesTheBuffer(t *testing.T) {
	buf := make([]byte, 3, 10)
	got, err := ReadFrame(strings.NewReader("\x00\x00\x00\x0aabcdefghij"), MaxFrame, buf)
	if err != nil || string(got) != "abcdefghij" || &got[0] != &buf[0] {
		t.Errorf("%q, %v, in the buffer: %v", got, err, &got[0] == &buf[0])
	}
}

func TestReadFrameErrors(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		max, left    int
		want         error
	}{
		{"the end between frames", "", 10, 0, io.EOF},
		{"the end inside the header", "\x00\x00", 10, 0, io.ErrUnexpectedEOF},
		{"the end behind the header", "\x00\x00\x00\x05", 10, 0, io.ErrUnexpectedEOF},
		{"the end inside the body", "\x00\x00\x00\x05abc", 10, 0, io.ErrUnexpectedEOF},
		{"no body", "\x00\x00\x00\x00next", 10, 4, ErrFrameEmpty},
		{"one byte too many", "\x00\x00\x00\x0babcdefghijk", 10, 11, ErrFrameTooLarge},
		{"4 GiB", "\xff\xff\xff\xffabc", 10, 3, ErrFrameTooLarge},
		{"more than the default", "\x00\x40\x00\x01abc", 0, 3, ErrFrameTooLarge},
	} {
		r := strings.NewReader(c.stream)
		_, err := ReadFrame(r, c.max, nil)
		if !errors.Is(err, c.want) || r.Len() != c.left {
			t.Errorf("%s: %v with %d bytes left, want %v with %d", c.name, err, r.Len(), c.want, c.left)
		}
	}
	// With a higher bound the same bytes are a valid frame.
	if got, err := ReadFrame(strings.NewReader("\x00\x00\x00\x0babcdefghijk"), 11, nil); err != nil || len(got) != 11 {
		t.Errorf("bound of 11: %q, %v", got, err)
	}
}

func TestFrameReaderReadsManyFrames(t *testing.T) {
	var stream []byte
	sizes := []int{5, 50_000, 1, 4096, 70_000, 3}
	for i, n := range sizes {
		stream = append(stream, frame(bytes.Repeat([]byte{byte(i)}, n))...)
	}
	budget := &allowance{limit: MaxUndecoded}
	f := FrameReader{R: iotest.HalfReader(bytes.NewReader(stream)), Budget: budget}
	for i, n := range sizes {
		body, err := f.Next()
		if err != nil || len(body) != n || body[0] != byte(i) || body[n-1] != byte(i) {
			t.Fatalf("frame %d: %d bytes, %v", i, len(body), err)
		}
		if want := n; n > smallFrame && budget.used != want || n <= smallFrame && budget.used != 0 {
			t.Errorf("frame %d of %d bytes holds %d", i, n, budget.used)
		}
	}
	if _, err := f.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if budget.used != 0 {
		t.Errorf("%d bytes still held", budget.used)
	}
}

// TestDeclaredLengthTakesNoMemory: a header alone takes no memory, and part of a body takes
// about as much as has arrived.
func TestDeclaredLengthTakesNoMemory(t *testing.T) {
	const connections = 64
	for _, c := range []struct{ sent, want int }{
		{0, smallFrame}, {smallFrame, 4 * smallFrame}, {100_000, 4 * 100_000},
	} {
		header := binary.BigEndian.AppendUint32(nil, MaxFrame)
		stream := append(header, make([]byte, c.sent)...)
		before := allocated()
		for range connections {
			if _, err := ReadFrame(bytes.NewReader(stream), MaxFrame, nil); err != io.ErrUnexpectedEOF {
				t.Fatal(err)
			}
		}
		if each := (allocated() - before) / connections; each > 2*uint64(c.want) {
			t.Errorf("%d bytes sent took %d", c.sent, each)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// allowance grants up to limit bytes, without waiting.
type allowance struct{ limit, used int }

func (a *allowance) Acquire(n int) error {
	if a.used+n > a.limit {
		return ErrOverloaded
	}
	a.used += n
	return nil
}

func (a *allowance) Release(n int) { a.used -= n }

func TestBudget(t *testing.T) {
	body := frame(make([]byte, 60_000))
	budget := &allowance{limit: 100_000}
	first := FrameReader{R: bytes.NewReader(body), Budget: budget}
	second := FrameReader{R: bytes.NewReader(append(body, body...)), Budget: budget}
	if _, err := first.Next(); err != nil || budget.used != 60_000 {
		t.Fatalf("the first: %v, %d held", err, budget.used)
	}
	if _, err := second.Next(); !errors.Is(err, ErrOverloaded) {
		t.Fatalf("the second: %v, want ErrOverloaded", err)
	}
	second.Release()
	small := FrameReader{R: bytes.NewReader(frame(make([]byte, smallFrame))), Budget: budget}
	if _, err := small.Next(); err != nil {
		t.Errorf("a small frame while the budget is spent: %v", err)
	}
	first.Release()
	if budget.used != 0 {
		t.Errorf("%d bytes held after all frames are released", budget.used)
	}
	third := FrameReader{R: bytes.NewReader(body), Budget: budget}
	if _, err := third.Next(); err != nil {
		t.Errorf("after the release: %v", err)
	}
	// Without a budget the second frame would have been read.
	free := FrameReader{R: bytes.NewReader(body)}
	if _, err := free.Next(); err != nil {
		t.Errorf("without a budget: %v", err)
	}
}

// TestSkip: a frame without room is skipped, and the frames after it are read.
func TestSkip(t *testing.T) {
	for _, n := range []int{smallFrame + 1, 60_000, MaxFrame} {
		body := bytes.Repeat([]byte("abcdefg"), n)[:n]
		stream := append(frame(body), frame([]byte("next"))...)
		f := FrameReader{R: iotest.HalfReader(bytes.NewReader(stream)), Budget: &allowance{limit: smallFrame}}
		if _, err := f.Next(); !errors.Is(err, ErrOverloaded) || !bytes.Equal(f.Head(), body[:smallFrame]) {
			t.Fatalf("%d bytes: %v, head of %d bytes", n, err, len(f.Head()))
		}
		if err := f.Skip(); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Next(); err != nil || string(got) != "next" {
			t.Errorf("after %d bytes: %q, %v", n, got, err)
		}
	}
	f := FrameReader{R: bytes.NewReader(frame(make([]byte, 60_000))[:50_000]), Budget: &allowance{limit: smallFrame}}
	_, _ = f.Next()
	if err := f.Skip(); err != io.ErrUnexpectedEOF {
		t.Errorf("the end inside a skipped frame: %v", err)
	}
}

// TestSkipAfterATemporaryError: a reader that got a temporary error inside a frame can
// skip the rest.
func TestSkipAfterATemporaryError(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 100_000)
	pause := errors.New("pause")
	stream := io.MultiReader(bytes.NewReader(frame(body)[:70_000]), &once{err: pause},
		bytes.NewReader(frame(body)[70_000:]),
		bytes.NewReader(frame([]byte("next"))))
	budget := &allowance{limit: MaxFrame}
	f := FrameReader{R: stream, Budget: budget}
	if _, err := f.Next(); !errors.Is(err, pause) || budget.used != len(body) {
		t.Fatalf("%v, %d bytes held", err, budget.used)
	}
	if err := f.Skip(); err != nil || budget.used != 0 {
		t.Fatalf("%v, %d bytes held", err, budget.used)
	}
	if got, err := f.Next(); err != nil || string(got) != "next" {
		t.Errorf("%q, %v", got, err)
	}
}

// once fails once and is then at its end.
type once struct{ err error }

func (o *once) Read([]byte) (int, error) {
	err := o.err
	o.err = io.EOF
	return 0, err
}

func TestReaderErrorsPass(t *testing.T) {
	broken := errors.New("broken")
	f := FrameReader{R: io.MultiReader(strings.NewReader("\x00\x00\x00\x05ab"), iotest.ErrReader(broken))}
	if _, err := f.Next(); !errors.Is(err, broken) {
		t.Errorf("%v, want the reader's error", err)
	}
}
