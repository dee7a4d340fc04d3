package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
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

// Budget bounds the bytes that frames in reception hold, over all readers that
// share it. It is safe for use by several goroutines.
type Budget struct {
	Limit int64 // bytes
	used  atomic.Int64
}

// Used is the number of bytes held now.
func (b *Budget) Used() int64 { return b.used.Load() }

// acquire takes n bytes, or nothing and false where they are not free.
func (b *Budget) acquire(n int64) bool {
	if b == nil {
		return true
	}
	for {
		used := b.used.Load()
		if used+n > b.Limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *Budget) release(n int64) {
	if b != nil {
		b.used.Add(-n)
	}
}

// FrameReader reads the frames of one connection. Memory grows with the bytes
// that arrive, never with the length that a header declares. It reads R in
// small pieces; put a bufio.Reader there.
type FrameReader struct {
	R      io.Reader
	Max    int     // bytes of a body; 0 is MaxFrame
	Budget *Budget // nil is none

	buf    []byte
	mapped []byte // what buf is part of, where a large frame is read
	held   int64  // bytes of Budget that buf holds
}

// Next returns the body of the next frame, valid until Next or Release is
// called. What the frame before held goes back to the budget first, so a reader
// that waits holds nothing. Errors: io.EOF between two frames,
// io.ErrUnexpectedEOF inside one, ErrFrameTooLarge, ErrFrameEmpty,
// ErrOverloaded, and what R returns.
func (f *FrameReader) Next() ([]byte, error) {
	f.Release()
	n, err := f.header()
	if err != nil {
		return nil, err
	}
	if f.Budget != nil && n >= mappedFrame {
		f.buf, f.mapped = nil, mapMemory(n)
	}
	for have := 0; have < n; {
		if err := f.grow(have, n); err != nil {
			return nil, err
		}
		end := min(n, len(f.buf))
		got, err := io.ReadFull(f.R, f.buf[have:end])
		if err != nil {
			return nil, cutShort(err)
		}
		have += got
	}
	return f.buf[:n], nil
}

// Release gives back what the last frame held; its body is no longer valid.
// Call it when the connection ends.
func (f *FrameReader) Release() {
	if f.held == 0 && f.mapped == nil {
		return
	}
	unmapMemory(f.mapped)
	f.Budget.release(f.held)
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

// grow makes room behind the have bytes that are there, for a body of n. It
// grows fourfold, so that copies and garbage stay a third of the whole.
func (f *FrameReader) grow(have, n int) error {
	if have < len(f.buf) {
		return nil
	}
	size, cost := max(smallFrame, min(4*have, n)), int64(0)
	if size > smallFrame {
		cost = int64(size)
	}
	if !f.Budget.acquire(cost - f.held) {
		return fmt.Errorf("%w: no %d bytes free of the %d that all connections share", ErrOverloaded, cost-f.held, f.Budget.Limit)
	}
	f.held = cost
	if f.mapped != nil {
		f.buf = f.mapped[:size]
		return nil
	}
	buf := make([]byte, size)
	copy(buf, f.buf[:have])
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
