// Package device is the interface between the forward pass and the hardware: memory
// behind opaque handles, streams that run ops, and graphs of captured ops. Its host
// device is pure Go, runs everywhere and is the reference for the others.
package device

import "errors"

// Errors of this package, for errors.Is.
var (
	ErrOutOfMemory = errors.New("device: out of memory")
	// ErrBusy means that another program holds the device or its memory. A later try
	// may succeed.
	ErrBusy      = errors.New("device: in use by another program")
	ErrBadBuffer = errors.New("device: buffer is not live or out of range")
	ErrBadShape  = errors.New("device: op arguments do not fit their buffers")
	ErrCapture   = errors.New("device: not allowed in this state of capture")
	// ErrInvalidated means that a call which a capture forbids has destroyed it, such
	// as a device-wide synchronise on any thread.
	ErrInvalidated  = errors.New("device: capture invalidated")
	ErrEmptyCapture = errors.New("device: nothing was captured")
	ErrDestroyed    = errors.New("device: used after it was destroyed")
	// ErrSticky means that the device is lost to this process. Every later call fails;
	// only a new process can use the device again.
	ErrSticky = errors.New("device: failed for good")
)

// GiveBack calls each release in order and joins their errors. It stops after an
// [ErrSticky], because a lost device must not be called again.
func GiveBack(releases ...func() error) (err error) {
	for _, release := range releases {
		if err = errors.Join(err, release()); errors.Is(err, ErrSticky) {
			return err
		}
	}
	return err
}

// Buffer names a range of device memory. It is a handle, not a pointer; a captured op
// keeps it as an argument.
type Buffer struct {
	device uint32 // number of the device that owns the memory
	id     uint32
	offset int64
	bytes  int64
}

// Bytes returns the size of the range.
func (b Buffer) Bytes() int64 { return b.bytes }

// IsZero reports whether b names no memory.
func (b Buffer) IsZero() bool { return b.id == 0 }

// Slice returns the part of b that starts at offset and is bytes long. For a part
// outside of b it returns the zero Buffer, which every op refuses.
func (b Buffer) Slice(offset, bytes int64) Buffer {
	if offset < 0 || bytes < 0 || offset+bytes > b.bytes {
		return Buffer{}
	}
	b.offset += offset
	b.bytes = bytes
	return b
}

// Op is one kernel launch: a plain struct of handles and integers. It has no pointers,
// so that its copy does not change after the launch or capture.
type Op interface {
	// Kernel returns the op's name, for counters and reports.
	Kernel() string
	// Check compares the op's dimensions with its buffers. Launch calls it first.
	Check() error
	// Host computes the op in host memory. It is the reference for other devices.
	Host(*Host)
}

// Stream runs the work enqueued on it in order, concurrently with the caller. One
// goroutine at a time may use it.
type Stream interface {
	// Launch enqueues op, or records it between BeginCapture and EndCapture.
	Launch(op Op) error
	// Replay enqueues all ops of a graph.
	Replay(Exec) error
	// Upload prepares an exec, so that its first replay costs no more than later ones.
	Upload(Exec) error
	// Record enqueues the completion of e: e completes after all earlier work.
	Record(e Event) error
	// Wait makes later work begin only after e has completed.
	Wait(e Event) error
	// Synchronize returns when all enqueued work is done.
	Synchronize() error

	// BeginCapture begins to record ops instead of running them.
	BeginCapture() error
	// EndCapture ends a capture, failed or not. After an error, such as
	// ErrInvalidated or ErrEmptyCapture, there is no graph.
	EndCapture() (Graph, error)

	// Destroy waits for all enqueued work and frees the stream.
	Destroy() error
}

// Event marks a point in a stream's work.
type Event interface {
	// Done reports whether the last Record has completed; true if there was none.
	// The error is the device's.
	Done() (bool, error)
	// Synchronize returns when the last Record has completed.
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
	// Bytes returns the device memory that the exec takes.
	Bytes() int64
	Destroy() error
}

// Memory is a device's memory.
type Memory interface {
	// Alloc allocates zeroed device memory.
	Alloc(bytes int64) (Buffer, error)
	// Uncleared allocates device memory of undefined content, for memory that is written
	// before it is read. A device may clear it as Alloc does.
	Uncleared(bytes int64) (Buffer, error)
	// Load allocates device memory that holds data. A device may keep data itself
	// instead of a copy, so the caller must not change data before Free.
	Load(data []byte) (Buffer, error)
	// Pinned allocates memory that host and device both address.
	Pinned(bytes int64) (Buffer, *Mapped, error)
	// Read copies device memory to dst and waits for the copy. The caller has waited
	// for the ops that write src.
	Read(dst []byte, src Buffer) error
	// Free frees the whole buffer of an Alloc, Uncleared, Load or Pinned. Like every
	// Destroy, it frees even if it returns an error, which is then of an earlier call.
	Free(Buffer) error
}

// Device is a host or a GPU.
type Device interface {
	Memory
	// Name returns the device's kind, "host" or "cuda".
	Name() string
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Capabilities returns the features in which devices differ. They never change.
	Capabilities() Capabilities
	// Trace calls fn for every later call on the device; nil ends the trace.
	Trace(fn func(Call))
	// Owns reports whether b is memory of this device.
	Owns(b Buffer) bool
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
	// Ranks is what a device of several ranks has beside; nil: the device is one.
	Ranks *RankSet
}

// Mapped is the host's view of pinned memory.
type Mapped struct {
	data  []byte
	trace func(Call)
}

// Bytes returns the memory. A device's write is visible after an event that was
// recorded after it has completed. A pass must not call Bytes between its launches: a
// pass that depends on a value of the device cannot be captured.
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

var callNames = [...]string{"launch", "replay", "upload", "record", "wait", "synchronise",
	"device-wide synchronise", "begin capture", "end capture", "instantiate", "destroy", "allocation", "free",
	"device-to-host read", "host read of a device value", "new", "query"}

// String returns the kind's name.
func (k CallKind) String() string { return callNames[k] }

// Call is one call on a device, as a trace sees it.
type Call struct {
	Kind    CallKind
	Op      Op   // of a launch
	Default bool // a launch on the default stream
}
