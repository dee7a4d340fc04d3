package device

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostAlignment is that of every host allocation: a cache line.
const hostAlignment = 64

// Host is the device made of the machine's processors and plain memory. Its
// streams are goroutines. Memory and streams may be made from any goroutine.
type Host struct {
	opts    HostOptions
	number  uint32 // tells this device's buffers from another's
	workers *workers
	faults  Faults
	trace   atomic.Pointer[func(Call)]

	mem  atomic.Pointer[[][]byte] // by Buffer.id; nil where freed; copied when it changes
	mu   sync.Mutex               // guards what follows and the change of mem
	free []uint32
	live Live
	// mapped is the memory that is not of Go's heap, by Buffer.id. Where it is
	// not freed it lasts as long as the process.
	mapped map[uint32][]byte

	captures map[*hostStream]struct{} // streams that capture

	lend    sync.Mutex // guards scratch: an op's pieces borrow from several processors
	scratch [][]float32
}

// Live counts what a device holds.
type Live struct {
	Buffers, Streams, Events, Graphs, Execs int
	Bytes                                   int64 // of buffers and execs
}

// HostOptions configures a Host.
type HostOptions struct {
	// Workers is how many processors an op may use; 0 means all of them.
	Workers int
	// Limit bounds the bytes that buffers and execs take; 0 means no bound.
	Limit int64
	// GraphBytes is what an exec is said to take, for tests of a budget; 0 means
	// what its nodes really take.
	GraphBytes int64
	// CaptureDelay is how long EndCapture takes.
	CaptureDelay time.Duration
	// Delay, where it is set, is asked how long to wait before each piece of
	// work of a stream: tests make races show with it.
	Delay func() time.Duration
}

var hosts atomic.Uint32

// NewHost makes a host device. Close ends its workers.
func NewHost(o HostOptions) *Host {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	h := &Host{opts: o, number: hosts.Add(1), workers: newWorkers(o.Workers), captures: map[*hostStream]struct{}{}, mapped: map[uint32][]byte{}}
	h.mem.Store(&[][]byte{nil}) // id 0 is never given out
	return h
}

// Name is "host".
func (h *Host) Name() string { return "host" }

// Capabilities are none.
func (h *Host) Capabilities() Capabilities { return Capabilities{} }

// Close ends the worker goroutines. Streams are destroyed before it.
func (h *Host) Close() { h.workers.close() }

// Live counts what is there now.
func (h *Host) Live() Live {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// Faults injects failures.
func (h *Host) Faults() *Faults { return &h.faults }

// Trace has fn see every call from now on; nil ends it. fn runs on the caller's goroutine.
func (h *Host) Trace(fn func(Call)) {
	if fn == nil {
		h.trace.Store(nil)
		return
	}
	h.trace.Store(&fn)
}

// enter notes a call and returns the failure that was injected at it.
func (h *Host) enter(c Call) error {
	h.see(c)
	return h.faults.next(c.Kind)
}

func (h *Host) see(c Call) {
	if fn := h.trace.Load(); fn != nil {
		(*fn)(c)
	}
}

// take counts bytes in, within the limit.
func (h *Host) take(bytes int64) error {
	if h.opts.Limit > 0 && h.live.Bytes+bytes > h.opts.Limit {
		return fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrOutOfMemory, bytes, h.live.Bytes, h.opts.Limit)
	}
	h.live.Bytes += bytes
	return nil
}

// Alloc takes bytes of zeroed memory, aligned to a cache line.
func (h *Host) Alloc(bytes int64) (Buffer, error) {
	if err := h.enter(Call{Kind: CallAlloc}); err != nil {
		return Buffer{}, err
	}
	if bytes <= 0 {
		return Buffer{}, fmt.Errorf("%w: %d bytes asked for", ErrBadBuffer, bytes)
	}
	return h.register(bytes, func() ([]byte, bool, error) { return allocate(bytes) })
}

// Uncleared is Alloc: new memory of the system is zero.
func (h *Host) Uncleared(bytes int64) (Buffer, error) { return h.Alloc(bytes) }

// Load keeps data itself, so that host weights are read where they were mapped.
// Only data that does not begin at a multiple of 4 bytes is copied.
func (h *Host) Load(data []byte) (Buffer, error) {
	if err := h.enter(Call{Kind: CallAlloc}); err != nil {
		return Buffer{}, err
	}
	if len(data) == 0 {
		return Buffer{}, fmt.Errorf("%w: nothing to load", ErrBadBuffer)
	}
	return h.register(int64(len(data)), func() ([]byte, bool, error) {
		if uintptr(unsafe.Pointer(&data[0]))%4 == 0 {
			return data, false, nil
		}
		c, mapped, err := allocate(int64(len(data)))
		copy(c, data)
		return c, mapped, err
	})
}

// Pinned takes memory; on the host every memory is addressed by both sides.
func (h *Host) Pinned(bytes int64) (Buffer, *Mapped, error) {
	b, err := h.Alloc(bytes)
	if err != nil {
		return Buffer{}, nil, err
	}
	return b, &Mapped{data: h.Bytes(b), trace: h.see}, nil
}

// Read copies b to dst. The caller has waited for what writes b.
func (h *Host) Read(dst []byte, b Buffer) error {
	if err := h.enter(Call{Kind: CallRead}); err != nil {
		return err
	}
	if int64(len(dst)) != b.bytes {
		return fmt.Errorf("%w: read of %d bytes into %d", ErrBadShape, b.bytes, len(dst))
	}
	copy(dst, h.Bytes(b))
	return nil
}

// register gives what data makes, bytes long, a handle. Data says whether it is
// memory that Free has to unmap.
func (h *Host) register(bytes int64, data func() ([]byte, bool, error)) (Buffer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.take(bytes); err != nil {
		return Buffer{}, err
	}
	made, mapped, err := data()
	if err != nil {
		h.live.Bytes -= bytes
		return Buffer{}, err
	}
	h.live.Buffers++
	mem := append([][]byte(nil), *h.mem.Load()...)
	id := uint32(len(mem))
	if n := len(h.free); n > 0 {
		id, h.free = h.free[n-1], h.free[:n-1]
		mem[id] = made
	} else {
		mem = append(mem, made)
	}
	h.mem.Store(&mem)
	if mapped {
		h.mapped[id] = made
	}
	return Buffer{device: h.number, id: id, bytes: bytes}, nil
}

// Free gives b back; b must be what Alloc, Load or Pinned returned, not a slice of it.
func (h *Host) Free(b Buffer) error {
	err := h.enter(Call{Kind: CallFree})
	h.mu.Lock()
	defer h.mu.Unlock()
	mem := append([][]byte(nil), *h.mem.Load()...)
	if b.id == 0 || int(b.id) >= len(mem) || mem[b.id] == nil || b.bytes != int64(len(mem[b.id])) || b.device != h.number {
		return fmt.Errorf("%w: free of buffer %d", ErrBadBuffer, b.id)
	}
	h.live.Bytes -= b.bytes
	h.live.Buffers--
	mem[b.id] = nil
	h.free = append(h.free, b.id)
	h.mem.Store(&mem)
	return errors.Join(err, h.unmap(b.id))
}

// unmap gives the memory of buffer id back to the system, where it is mapped.
func (h *Host) unmap(id uint32) error {
	mem, ok := h.mapped[id]
	if !ok {
		return nil
	}
	delete(h.mapped, id)
	return unix.Munmap(mem)
}

// Owns tells whether b is memory of this device.
func (h *Host) Owns(b Buffer) bool { return b.device == h.number }

// Bytes views b.
func (h *Host) Bytes(b Buffer) []byte {
	return (*h.mem.Load())[b.id][b.offset : b.offset+b.bytes]
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
