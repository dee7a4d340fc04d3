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

// hostAlignment is the alignment of every allocation in bytes: a cache line.
const hostAlignment = 64

// Host is the device that computes on the machine's processors, in plain memory. Its
// streams are goroutines. Any goroutine may make memory and streams.
type Host struct {
	opts    HostOptions
	number  uint32 // of this device, in its buffers
	workers *workers
	faults  Faults
	trace   atomic.Pointer[func(Call)]

	mem  atomic.Pointer[[][]byte] // by Buffer.id; nil if freed; copied on write
	mu   sync.Mutex               // guards writes of mem, and free, live, mapped and captures
	free []uint32                 // ids of freed buffers
	live Live
	// mapped holds the buffers outside Go's heap, by Buffer.id. Without Free they last
	// as long as the process.
	mapped map[uint32][]byte

	captures map[*hostStream]struct{} // streams that capture

	rank       int         // of simulation
	simulation *simulation // nil: the host is no rank

	lend    sync.Mutex // guards scratch: the chunks of a parallel loop borrow concurrently
	scratch [][]float32
}

// Live counts the objects and bytes that exist on a device.
type Live struct {
	Buffers, Streams, Events, Graphs, Execs int
	Bytes                                   int64 // of buffers and execs
}

// HostOptions configures a Host.
type HostOptions struct {
	// Workers is the number of processors that an op may use; 0: all.
	Workers int
	// Limit bounds the bytes of buffers and execs; 0: no bound.
	Limit int64
	// GraphBytes is the reported size of every exec, for tests of a budget; 0: the size
	// of its nodes.
	GraphBytes int64
	// CaptureDelay is the duration of EndCapture, for tests.
	CaptureDelay time.Duration
	// Delay returns the pause before each entry of a stream's queue; nil: none. With it
	// tests provoke races.
	Delay func() time.Duration
}

var hosts atomic.Uint32

// NewHost makes a host device. Close ends its workers.
func NewHost(o HostOptions) *Host {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	h := &Host{opts: o, number: hosts.Add(1), workers: newWorkers(o.Workers),
		captures: map[*hostStream]struct{}{}, mapped: map[uint32][]byte{}}
	h.mem.Store(&[][]byte{nil}) // id 0 is the zero Buffer
	return h
}

// Name returns "host".
func (h *Host) Name() string { return "host" }

// Capabilities returns the zero value.
func (h *Host) Capabilities() Capabilities { return Capabilities{} }

// Close ends the worker goroutines. All streams must have been destroyed.
func (h *Host) Close() { h.workers.close() }

// Live returns the present counts.
func (h *Host) Live() Live {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live
}

// Faults returns the device's failure injection.
func (h *Host) Faults() *Faults { return &h.faults }

// Trace calls fn for every later call, on the caller's goroutine; nil ends the trace.
func (h *Host) Trace(fn func(Call)) {
	if fn == nil {
		h.trace.Store(nil)
		return
	}
	h.trace.Store(&fn)
}

// enter traces a call and returns the failure injected at it, or nil.
func (h *Host) enter(c Call) error {
	h.see(c)
	return h.faults.next(c.Kind)
}

func (h *Host) see(c Call) {
	if fn := h.trace.Load(); fn != nil {
		(*fn)(c)
	}
}

// take adds bytes to the count, within the limit.
func (h *Host) take(bytes int64) error {
	if h.opts.Limit > 0 && h.live.Bytes+bytes > h.opts.Limit {
		return fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrOutOfMemory, bytes, h.live.Bytes,
			h.opts.Limit)
	}
	h.live.Bytes += bytes
	return nil
}

// Alloc allocates zeroed memory, aligned to a cache line.
func (h *Host) Alloc(bytes int64) (Buffer, error) {
	if err := h.enter(Call{Kind: CallAlloc}); err != nil {
		return Buffer{}, err
	}
	if bytes <= 0 {
		return Buffer{}, fmt.Errorf("%w: %d bytes asked for", ErrBadBuffer, bytes)
	}
	return h.register(bytes, func() ([]byte, bool, error) { return allocate(bytes) })
}

// Uncleared is Alloc.
func (h *Host) Uncleared(bytes int64) (Buffer, error) { return h.Alloc(bytes) }

// Load keeps data itself, so that host weights are read from the mapped file. It copies
// only data that does not begin at a multiple of 4 bytes.
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

// Pinned is Alloc, with a view of the memory.
func (h *Host) Pinned(bytes int64) (Buffer, *Mapped, error) {
	b, err := h.Alloc(bytes)
	if err != nil {
		return Buffer{}, nil, err
	}
	return b, &Mapped{data: h.Bytes(b), trace: h.see}, nil
}

// Read copies b to dst, which has its size. The caller has waited for the ops that write b.
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

// register calls alloc for memory of the given size and makes its handle. alloc reports
// whether Free has to unmap the memory.
func (h *Host) register(bytes int64, alloc func() (mem []byte, mapped bool, err error)) (Buffer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.take(bytes); err != nil {
		return Buffer{}, err
	}
	made, mapped, err := alloc()
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

// Free frees b, which must be a whole allocation, not a slice of one.
func (h *Host) Free(b Buffer) error {
	err := h.enter(Call{Kind: CallFree})
	h.mu.Lock()
	defer h.mu.Unlock()
	mem := append([][]byte(nil), *h.mem.Load()...)
	if b.id == 0 || int(b.id) >= len(mem) || mem[b.id] == nil || b.bytes != int64(len(mem[b.id])) ||
		b.device != h.number {
		return fmt.Errorf("%w: free of buffer %d", ErrBadBuffer, b.id)
	}
	h.live.Bytes -= b.bytes
	h.live.Buffers--
	mem[b.id] = nil
	h.free = append(h.free, b.id)
	h.mem.Store(&mem)
	return errors.Join(err, h.unmap(b.id))
}

// unmap returns the memory of buffer id to the system, if it is mapped.
func (h *Host) unmap(id uint32) error {
	mem, ok := h.mapped[id]
	if !ok {
		return nil
	}
	delete(h.mapped, id)
	return unix.Munmap(mem)
}

// Owns reports whether b is memory of this device.
func (h *Host) Owns(b Buffer) bool { return b.device == h.number }

// Bytes returns b's memory.
func (h *Host) Bytes(b Buffer) []byte {
	return (*h.mem.Load())[b.id][b.offset : b.offset+b.bytes]
}

// Float32 returns b's memory as float32 values.
func (h *Host) Float32(b Buffer) []float32 { return view[float32](h, b) }

// Int32 returns b's memory as int32 values.
func (h *Host) Int32(b Buffer) []int32 { return view[int32](h, b) }

// Uint32 returns b's memory as uint32 values.
func (h *Host) Uint32(b Buffer) []uint32 { return view[uint32](h, b) }

// Uint16 returns b's memory as 16-bit values: bfloat16 or float16 bits.
func (h *Host) Uint16(b Buffer) []uint16 { return view[uint16](h, b) }

func view[T any](h *Host, b Buffer) []T {
	raw := h.Bytes(b)
	if len(raw) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(&raw[0])), len(raw)/int(unsafe.Sizeof(one)))
}

// Scratch lends an op n float32 values of undefined content until Return.
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
