// Package device is the seam between the forward pass and the hardware: memory
// behind opaque handles, streams that take ops, and graphs of captured ops. The
// host device in this package is pure Go; it runs everywhere and is the
// reference for the others.
package device

import "errors"

// Errors of this package; callers test with errors.Is.
var (
	ErrOutOfMemory = errors.New("device: out of memory")
	// ErrBusy says that another program holds the device, or the memory that is
	// wanted of it: a little later it may be free.
	ErrBusy      = errors.New("device: in use by another program")
	ErrBadBuffer = errors.New("device: buffer is not live or out of range")
	ErrBadShape  = errors.New("device: op arguments do not fit their buffers")
	ErrCapture   = errors.New("device: not allowed in this state of capture")
	// ErrInvalidated says that a capture was lost to something that a capture
	// does not bear: a device-wide synchronise on any thread, for one.
	ErrInvalidated  = errors.New("device: capture invalidated")
	ErrEmptyCapture = errors.New("device: nothing was captured")
	ErrDestroyed    = errors.New("device: used after it was destroyed")
	// ErrSticky says that the device is lost to this process: every later call
	// fails, and only a new process helps.
	ErrSticky = errors.New("device: failed for good")
)

// GiveBack calls each release, until one says that the device is lost: such a
// device is not called again.
func GiveBack(releases ...func() error) (err error) {
	for _, release := range releases {
		if err = errors.Join(err, release()); errors.Is(err, ErrSticky) {
			return err
		}
	}
	return err
}

// Buffer names a range of device memory. It is a handle, not a pointer: a
// captured op keeps the handle it was given.
type Buffer struct {
	device uint32 // which device's memory
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
	b.offset += offset
	b.bytes = bytes
	return b
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

// Stream runs what is enqueued on it in order, beside the caller. One goroutine
// at a time may use it.
type Stream interface {
	// Launch enqueues op, or records it between BeginCapture and EndCapture.
	Launch(op Op) error
	// Replay enqueues all ops of a graph.
	Replay(Exec) error
	// Upload prepares an exec, so that its first replay costs what the others do.
	Upload(Exec) error
	// Record has e complete when what was enqueued before it has.
	Record(e Event) error
	// Wait has what is enqueued after it begin when e has completed.
	Wait(e Event) error
	// Synchronize returns when all that was enqueued is done.
	Synchronize() error

	// BeginCapture has the ops that follow recorded instead of run.
	BeginCapture() error
	// EndCapture ends a capture, whatever became of it. Errors: ErrInvalidated,
	// ErrEmptyCapture; then there is no graph.
	EndCapture() (Graph, error)

	// Destroy ends the stream when all that was enqueued is done.
	Destroy() error
}

// Event is a mark on a stream.
type Event interface {
	// Done tells whether the last Record has completed; one that was never
	// recorded has. The error is the device's.
	Done() (bool, error)
	// Synchronize returns when Done would be true.
	Synchronize() error
	Destroy() error
}

// Graph is a recorded sequence of ops.
type Graph interface {
	Nodes() int
	Instantiate() (Exec, error)
	Destroy() error
}

// Exec is a graph that can be replayed.
type Exec interface {
	// Bytes of device memory that the exec takes.
	Bytes() int64
	Destroy() error
}

// Memory is a device's memory.
type Memory interface {
	// Alloc takes bytes of zeroed device memory.
	Alloc(bytes int64) (Buffer, error)
	// Uncleared allocates device memory of undefined content, for memory that is written
	// before it is read. A device may clear it as Alloc does.
	Uncleared(bytes int64) (Buffer, error)
	// Load takes device memory that holds data. A device may keep data itself
	// instead of a copy: the caller leaves it as it is until Free.
	Load(data []byte) (Buffer, error)
	// Pinned takes memory that host and device both address.
	Pinned(bytes int64) (Buffer, *Mapped, error)
	// Read copies device memory to dst and waits for the copy. What was enqueued
	// to write src has completed: the caller has waited for it.
	Read(dst []byte, src Buffer) error
	// Free gives back what Alloc, Load or Pinned took. Like every Destroy it has
	// done so even where it reports a failure: that of an earlier call.
	Free(Buffer) error
}

// Device is what the engine needs of a device.
type Device interface {
	Memory
	// Name is the device's kind, "host" or "cuda".
	Name() string
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Capabilities declares what this device can do that others cannot. It never changes.
	Capabilities() Capabilities
	// Trace calls fn for every later call on the device; nil ends the trace.
	Trace(fn func(Call))
	// Owns reports whether b is memory of this device.
	Owns(b Buffer) bool
	// Synchronize waits for every stream. It invalidates captures on any
	// thread, so after start-up nothing calls it.
	Synchronize() error
}

// Capabilities are the differences between devices. The zero value is a device
// with none of them; a nil function is one that the device lacks.
type Capabilities struct {
	// PacksWeights means that kernels read weights in packed tiles, which the
	// device packs itself. Otherwise they read weights as they are in the file.
	PacksWeights bool
	// FreeMemory returns the free bytes of device memory.
	FreeMemory func() (int64, error)
	// Intact checks the canaries around every buffer; see [Guard.Intact].
	Intact func() error
}

// Mapped is pinned memory as the host sees it.
type Mapped struct {
	data  []byte
	trace func(Call)
}

// Bytes is the memory. What the device wrote is there once an event after the
// write has completed. Between the launches of a pass it is not read: a pass
// that depends on a device's value cannot be captured.
func (m *Mapped) Bytes() []byte {
	if m.trace != nil {
		m.trace(Call{Kind: CallHostRead})
	}
	return m.data
}

// CallKind is a kind of call on a device.
type CallKind uint8

// The kinds of call that a trace or an injected failure sees.
const (
	CallLaunch CallKind = iota
	CallReplay
	CallUpload
	CallRecord
	CallWait
	CallSynchronize // of a stream or an event
	CallDeviceSynchronize
	CallBeginCapture
	CallEndCapture
	CallInstantiate
	CallDestroy
	CallAlloc
	CallFree
	CallRead
	CallHostRead // of pinned memory
	CallNew      // stream or event
	CallQuery
)

var callNames = [...]string{"launch", "replay", "upload", "record", "wait", "synchronise", "device-wide synchronise",
	"begin capture", "end capture", "instantiate", "destroy", "allocation", "free", "device-to-host read", "host read of a device value", "new", "query"}

// String is the kind's name.
func (k CallKind) String() string { return callNames[k] }

// Call is one call on a device, as a trace sees it.
type Call struct {
	Kind    CallKind
	Op      Op   // of a launch
	Default bool // a launch on the default stream
}
