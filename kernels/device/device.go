// Package device is the seam between the forward pass and the hardware: memory
// behind opaque handles, and streams that take ops. The host device in this
// package is pure Go; it runs everywhere and is the reference for the others.
package device

import "errors"

// Errors of this package; callers test with errors.Is.
var (
	ErrOutOfMemory = errors.New("device: out of memory")
	ErrBadBuffer   = errors.New("device: buffer is not live or out of range")
	ErrBadShape    = errors.New("device: op arguments do not fit their buffers")
)

// Buffer names a range of device memory. It is a handle, not a pointer: a
// captured op keeps the handle it was given.
type Buffer struct {
	id     uint32
	offset int64
	bytes  int64
}

// Bytes is the size of the range.
func (b Buffer) Bytes() int64 { return b.bytes }

// IsZero tells whether b names no memory.
func (b Buffer) IsZero() bool { return b.id == 0 }

// Slice is the part of b from offset on, bytes long. A part that is not inside
// b is the zero Buffer, which every op refuses.
func (b Buffer) Slice(offset, bytes int64) Buffer {
	if offset < 0 || bytes < 0 || offset+bytes > b.bytes {
		return Buffer{}
	}
	return Buffer{id: b.id, offset: b.offset + offset, bytes: bytes}
}

// Op is one kernel launch: a plain struct of handles and integers, without
// pointers, so that a copy of it stays what it was when it was launched or captured.
type Op interface {
	// Kernel is the op's name, for counters and reports.
	Kernel() string
	// Check compares the op's dimensions with its buffers before it is launched.
	Check() error
	// Host computes the op in host memory; it is the reference for other devices.
	Host(*Host)
}

// Stream runs ops in the order in which they are launched.
type Stream interface {
	// Launch enqueues op after what was launched before it.
	Launch(op Op) error
	// Synchronize returns when all that was launched is done.
	Synchronize() error
}

// Memory is a device's memory.
type Memory interface {
	// Alloc takes bytes of zeroed device memory.
	Alloc(bytes int64) (Buffer, error)
	// Load takes device memory that holds data. A device may keep data itself
	// instead of a copy: the caller leaves it as it is until Free.
	Load(data []byte) (Buffer, error)
	// Pinned takes memory that host and device both address.
	Pinned(bytes int64) (Buffer, []byte, error)
	// Free gives back what Alloc, Load or Pinned took.
	Free(Buffer) error
}

// Device is what the engine needs of a device.
type Device interface {
	Memory
	// Name is the device's kind, "host" or "cuda".
	Name() string
	NewStream() (Stream, error)
}
