package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// headerBytes is the length in front of every frame: 4 bytes, big-endian.
const headerBytes = 4

// smallFrame is what a FrameReader reads at first and keeps between frames. It
// is outside the budget, so that a small frame passes whatever others send.
const smallFrame = 4 << 10

// Errors of reading and writing frames. After the first three the place in the
// stream is lost and the connection has to close.
var (
	ErrFrameTooLarge = errors.New("protocol: frame too large")
	ErrFrameEmpty    = errors.New("protocol: frame without a body")
	ErrOverloaded    = errors.New("protocol: too many undecoded bytes")
	ErrNotMessage    = errors.New("protocol: not a message of this protocol")
)

// Allowance grants the bytes that frames hold while they are received and
// decoded. One FrameReader calls it from one goroutine.
type Allowance interface {
	// Acquire takes n bytes, at most a frame's. It may wait for them. An error
	// wraps ErrOverloaded; then nothing was taken.
	Acquire(n int) error
	// Release gives n bytes back.
	Release(n int)
}

// FrameReader reads the frames of one connection. Memory grows with the bytes
// that arrive, never with the length that a header declares. It reads R in
// small pieces; put a bufio.Reader there.
type FrameReader struct {
	R      io.Reader
	Max    int       // bytes of a body; 0 is MaxFrame
	Budget Allowance // asked for all bytes of a body above 4 KiB once 4 KiB have come; nil grants everything

	buf    []byte
	mapped []byte // the memory of buf, for a large frame
	held   int    // bytes of Budget that buf holds
	length int    // bytes of the frame's body
	have   int    // bytes of it that have come
}

// Next returns the body of the next frame, valid until Next, Skip or Release is
// called. The bytes of the frame before go back to the budget first, so a
// waiting reader holds nothing. Errors: io.EOF between two frames,
// io.ErrUnexpectedEOF inside one, ErrFrameTooLarge, ErrFrameEmpty,
// ErrOverloaded, and those of R. After ErrOverloaded, or an error of R that
// passes, Skip leads to the next frame.
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

// Head returns the first bytes of a frame that Next gave up, 4 KiB at most. They
// are valid until the next call of another method.
func (f *FrameReader) Head() []byte { return f.buf[:min(f.have, smallFrame)] }

// Skip reads and drops the rest of a frame that Next gave up. It holds no memory
// meanwhile. Errors are those of R.
func (f *FrameReader) Skip() error {
	left := int64(f.length - f.have)
	f.Release()
	_, err := io.CopyN(io.Discard, f.R, left)
	return cutShort(err)
}

// Release gives back the memory of the last frame; its body is no longer valid.
// Call it when the connection ends.
func (f *FrameReader) Release() {
	f.length, f.have = 0, 0
	if f.held == 0 {
		return
	}
	unmapMemory(f.mapped)
	f.Budget.Release(f.held)
	f.held, f.buf, f.mapped = 0, nil, nil
}

// header reads the length in front of a frame and checks it.
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

// grow makes room behind the bytes that are there. It grows fourfold, so that
// copies and garbage stay a third of the whole.
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

// cutShort turns the end of the stream inside a frame into ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadFrame reads one frame's body of at most limit bytes from r, into buf where
// it fits; a limit of 0 is MaxFrame. Errors are those of FrameReader.Next.
func ReadFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	f := FrameReader{R: r, Max: limit, buf: buf[:cap(buf)]}
	return f.Next()
}
