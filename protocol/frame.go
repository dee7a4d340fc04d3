package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// headerBytes is the size of the length before every frame: 4 bytes, big-endian.
const headerBytes = 4

// smallFrame is the size of the buffer that a FrameReader starts with and keeps between
// frames. It is outside the budget, so a small frame passes regardless of others.
const smallFrame = 4 << 10

// Errors of reading and writing frames. After the first three the position in the stream
// is lost and the connection has to close.
var (
	ErrFrameTooLarge = errors.New("protocol: frame too large")
	ErrFrameEmpty    = errors.New("protocol: frame without a body")
	ErrOverloaded    = errors.New("protocol: too many undecoded bytes")
	ErrNotMessage    = errors.New("protocol: not a message of this protocol")
)

// Allowance grants the bytes that frames take while they are received and decoded. A
// FrameReader calls it from one goroutine.
type Allowance interface {
	// Acquire takes n bytes, at most a frame's, and may wait for them. If it takes
	// nothing, its error wraps ErrOverloaded.
	Acquire(n int) error
	// Release returns n bytes.
	Release(n int)
}

// FrameReader reads the frames of one connection. Its memory grows with the bytes that
// arrive, not with the length that a header declares. It reads R in small pieces, so R
// should be a bufio.Reader.
type FrameReader struct {
	R      io.Reader
	Max    int       // bytes of a body; 0: MaxFrame
	Budget Allowance // asked for a body above 4 KiB, all of it, once 4 KiB have arrived; nil: no limit

	buf    []byte
	mapped []byte // the memory of buf, for a large frame
	held   int    // bytes of Budget that buf holds
	length int    // bytes of the frame's body
	have   int    // bytes of it that have arrived
}

// Next returns the body of the next frame, valid until the next call of Next, Skip or
// Release. It first returns the previous frame's bytes to the budget, so a waiting reader
// holds none. Errors are io.EOF between frames, io.ErrUnexpectedEOF inside one,
// ErrFrameTooLarge, ErrFrameEmpty, ErrOverloaded, and errors of R. After ErrOverloaded,
// or a temporary error of R, Skip leads to the next frame.
func (f *FrameReader) Next() ([]byte, error) {
	f.Release()
	n, err := f.header()
	if err != nil {
		return nil, err
	}
	f.length = n
	for f.have < n {
		if err := f.grow(); err != nil {
			return nil, err
		}
		got, err := io.ReadFull(f.R, f.buf[f.have:min(n, len(f.buf))])
		f.have += got
		if err != nil {
			return nil, cutShort(err)
		}
	}
	return f.buf[:n], nil
}

// Head returns the first bytes, at most 4 KiB, of a frame that Next gave up. They are
// valid until another method is called.
func (f *FrameReader) Head() []byte { return f.buf[:min(f.have, smallFrame)] }

// Skip reads and drops the rest of a frame that Next gave up, without holding memory. Its
// errors are those of R.
func (f *FrameReader) Skip() error {
	left := int64(f.length - f.have)
	f.Release()
	_, err := io.CopyN(io.Discard, f.R, left)
	return cutShort(err)
}

// Release frees the memory of the last frame, which invalidates its body. Call it when
// the connection ends.
func (f *FrameReader) Release() {
	f.length, f.have = 0, 0
	if f.held == 0 {
		return
	}
	unmapMemory(f.mapped)
	f.Budget.Release(f.held)
	f.held, f.buf, f.mapped = 0, nil, nil
}

// header reads and checks the length of a frame.
func (f *FrameReader) header() (int, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(f.R, h[:]); err != nil {
		return 0, err
	}
	limit := f.Max
	if limit == 0 {
		limit = MaxFrame
	}
	n := binary.BigEndian.Uint32(h[:])
	switch {
	case n == 0:
		return 0, ErrFrameEmpty
	case uint64(n) > uint64(limit):
		return 0, fmt.Errorf("%w: %d bytes declared, %d allowed", ErrFrameTooLarge, n, limit)
	}
	return int(n), nil
}

// grow extends the buffer when it is full. It grows by a factor of four, which keeps
// copies and garbage to a third of the total.
func (f *FrameReader) grow() error {
	if f.have < len(f.buf) {
		return nil
	}
	size := max(smallFrame, min(4*f.have, f.length))
	if size > smallFrame && f.Budget != nil && f.held == 0 {
		if err := f.Budget.Acquire(f.length); err != nil {
			return err
		}
		f.held = f.length
		if f.length >= mappedFrame {
			f.mapped = mapMemory(f.length)
		}
	}
	buf := f.mapped
	if buf == nil {
		buf = make([]byte, size)
	}
	copy(buf, f.buf[:f.have])
	f.buf = buf
	return nil
}

// cutShort turns io.EOF inside a frame into io.ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadFrame reads the body of one frame, at most limit bytes, from r. It uses buf if the
// body fits; a limit of 0 means MaxFrame. Its errors are those of [FrameReader.Next].
func ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	f := FrameReader{R: r, Max: limit, buf: buf[:cap(buf)]}
	return f.Next()
}
