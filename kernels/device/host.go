package device

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// hostAlignment is that of every host allocation: a cache line.
const hostAlignment = 64

// Host is the device made of the machine's processors and plain memory.
// One goroutine at a time may use it, as one thread owns a GPU.
type Host struct {
	mem     [][]byte // by Buffer.id; nil where freed; id 0 is never given out
	free    []uint32
	live    int64
	limit   int64
	workers *workers
	lend    sync.Mutex // guards scratch: an op's pieces borrow from several processors
	scratch [][]float32
}

// HostOptions configures a Host.
type HostOptions struct {
	// Workers is how many processors an op may use; 0 means all of them.
	Workers int
	// Limit bounds the bytes allocated; 0 means no bound.
	Limit int64
}

// NewHost makes a host device. Close ends its workers.
func NewHost(o HostOptions) *Host {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return &Host{mem: make([][]byte, 1), limit: o.Limit, workers: newWorkers(o.Workers)}
}

// Name is "host".
func (h *Host) Name() string { return "host" }

// Close ends the worker goroutines. Memory goes with the Host.
func (h *Host) Close() { h.workers.close() }

// Live is how many bytes are allocated now.
func (h *Host) Live() int64 { return h.live }

// Alloc takes bytes of zeroed memory, aligned to a cache line.
func (h *Host) Alloc(bytes int64) (Buffer, error) {
	if bytes <= 0 {
		return Buffer{}, fmt.Errorf("%w: %d bytes asked for", ErrBadBuffer, bytes)
	}
	if h.limit > 0 && h.live+bytes > h.limit {
		return Buffer{}, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrOutOfMemory, bytes, h.live, h.limit)
	}
	raw := make([]byte, bytes+hostAlignment)
	skip := (hostAlignment - int64(uintptr(unsafe.Pointer(&raw[0]))%hostAlignment)) % hostAlignment
	return h.register(raw[skip : skip+bytes : skip+bytes]), nil
}

// Load keeps data itself, so that host weights are read where they were mapped.
// Only data that does not begin at a multiple of 4 bytes is copied.
func (h *Host) Load(data []byte) (Buffer, error) {
	if len(data) == 0 {
		return Buffer{}, fmt.Errorf("%w: nothing to load", ErrBadBuffer)
	}
	if uintptr(unsafe.Pointer(&data[0]))%4 == 0 {
		return h.register(data), nil
	}
	b, err := h.Alloc(int64(len(data)))
	if err == nil {
		copy(h.Bytes(b), data)
	}
	return b, err
}

// Pinned takes memory; on the host every memory is addressed by both sides.
func (h *Host) Pinned(bytes int64) (Buffer, []byte, error) {
	b, err := h.Alloc(bytes)
	if err != nil {
		return Buffer{}, nil, err
	}
	return b, h.mem[b.id], nil
}

func (h *Host) register(data []byte) Buffer {
	h.live += int64(len(data))
	if n := len(h.free); n > 0 {
		id := h.free[n-1]
		h.free = h.free[:n-1]
		h.mem[id] = data
		return Buffer{id: id, bytes: int64(len(data))}
	}
	h.mem = append(h.mem, data)
	return Buffer{id: uint32(len(h.mem) - 1), bytes: int64(len(data))}
}

// Free gives b back; b must be what Alloc, Load or Pinned returned, not a slice of it.
func (h *Host) Free(b Buffer) error {
	if b.id == 0 || int(b.id) >= len(h.mem) || h.mem[b.id] == nil || b.bytes != int64(len(h.mem[b.id])) {
		return fmt.Errorf("%w: free of buffer %d", ErrBadBuffer, b.id)
	}
	h.live -= b.bytes
	h.mem[b.id] = nil
	h.free = append(h.free, b.id)
	return nil
}

// NewStream makes a stream that runs each op as it is launched.
func (h *Host) NewStream() (Stream, error) { return &hostStream{h: h}, nil }

// hostStream runs ops on the caller's goroutine, so nothing is ever pending.
type hostStream struct{ h *Host }

func (s *hostStream) Launch(op Op) error {
	if err := op.Check(); err != nil {
		return fmt.Errorf("%s: %w", op.Kernel(), err)
	}
	op.Host(s.h)
	return nil
}

func (s *hostStream) Synchronize() error { return nil }

// Bytes views b.
func (h *Host) Bytes(b Buffer) []byte {
	return h.mem[b.id][b.offset : b.offset+b.bytes]
}

// Float32 views b as float32 values.
func (h *Host) Float32(b Buffer) []float32 { return view[float32](h, b) }

// Int32 views b as int32 values.
func (h *Host) Int32(b Buffer) []int32 { return view[int32](h, b) }

// Uint16 views b as 16-bit values: bfloat16 or float16 bits.
func (h *Host) Uint16(b Buffer) []uint16 { return view[uint16](h, b) }

func view[T any](h *Host, b Buffer) []T {
	raw := h.Bytes(b)
	if len(raw) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&raw[0])), len(raw)/int(unsafe.Sizeof(one)))
}

// Scratch lends n float32 values of undefined content to an op; Return takes them back.
func (h *Host) Scratch(n int) []float32 {
	h.lend.Lock()
	defer h.lend.Unlock()
	for i := len(h.scratch) - 1; i >= 0; i-- {
		if s := h.scratch[i]; cap(s) >= n {
			h.scratch = append(h.scratch[:i], h.scratch[i+1:]...)
			return s[:n]
		}
	}
	return make([]float32, n)
}

// Return takes scratch back.
func (h *Host) Return(s []float32) {
	h.lend.Lock()
	h.scratch = append(h.scratch, s)
	h.lend.Unlock()
}
