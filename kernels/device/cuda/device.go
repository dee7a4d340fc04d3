//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gorgonia.org/cu"

	"reel.internal/reel/kernels/device"
)

// Device is one GPU: its context, its kernels and its memory. Any goroutine
// may call it. The engine, the roller and the pinning of the host tier do, each on its own thread.
type Device struct {
	number     uint32 // of this device, in its buffers
	gpu        cu.Device
	context    cu.CUContext
	sms        int
	capability [2]int                // compute capability: major, minor
	lost       atomic.Pointer[error] // ErrSticky with its cause, once the device is lost
	trace      atomic.Pointer[func(device.Call)]
	serial     atomic.Bool // programmatic dependent launch is off
	rank       int         // of peers
	peers      []*Device   // the ranks of one device, this one among them; nil: it is no rank

	mu        sync.Mutex
	images    Images
	modules   map[string]cu.Module // by image: those that are loaded
	functions map[string]*function
	memory    atomic.Pointer[[]allocation] // by Buffer id; copied on write
	free      []uint32                     // ids of freed buffers
	words     []word                       // free words for events
}

// allocation is the memory of a buffer.
type allocation struct {
	address uint64 // on the device
	bytes   int64
	host    unsafe.Pointer // address on the host, if the driver allocated it there
	pinned  []byte         // memory that was mapped and then pinned
	shared  bool           // pinned by another rank, which frees it
}

var devices atomic.Uint32

// Images are all kernels, in images that the driver loads. Each is loaded when a kernel of it is first asked for.
type Images interface {
	// Image returns the name of the image that has this kernel, "" if none has.
	Image(kernel string) string
	// Read returns an image in the format of cuModuleLoadFatBinary.
	Read(image string) ([]byte, error)
}

// anyKernel is in the image that every model needs.
const anyKernel = "reel_fill"

// New opens GPU number gpu and loads the image that every model needs. Others are loaded with the first launch of one of
// their kernels. Close frees all.
func New(gpu int, images Images) (*Device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := Init(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil || gpu >= n {
		return nil, fmt.Errorf("cuda: GPU %d is not there, %d are: %w", gpu, n, device.ErrBadBuffer)
	}
	// Host devices are numbered upwards from 1, GPUs downwards from the top.
	d := &Device{number: ^devices.Add(1), gpu: cu.Device(gpu), images: images, modules: map[string]cu.Module{},
		functions: map[string]*function{}}
	d.memory.Store(&[]allocation{{}})
	if d.context, err = d.gpu.MakeContext(cu.SchedAuto); err != nil {
		return nil, d.wrapped("context", err)
	}
	if err := d.open(); err != nil {
		// A later try makes a new context.
		return nil, errors.Join(err, d.wrapped("destroy context", d.context.Destroy()))
	}
	return d, nil
}

// open reads the GPU's properties and loads the first kernels into the current context.
func (d *Device) open() (err error) {
	if d.sms, err = d.gpu.Attribute(cu.MultiprocessorCount); err != nil {
		return d.wrapped("multiprocessors", err)
	}
	if d.capability[0], d.capability[1], err = d.gpu.ComputeCapability(); err != nil {
		return d.wrapped("compute capability", err)
	}
	_, err = d.moduleOf(anyKernel)
	return d.wrapped("kernels", err)
}

// Name returns "cuda".
func (d *Device) Name() string { return "cuda" }

// Capabilities returns packed weights and the driver's count of free memory.
func (d *Device) Capabilities() device.Capabilities {
	return device.Capabilities{PacksWeights: true, FreeMemory: func() (int64, error) {
		free, _, err := d.MemInfo()
		return free, err
	}}
}

// Capability returns the GPU's compute capability: 9, 0 for Hopper.
func (d *Device) Capability() (major, minor int) { return d.capability[0], d.capability[1] }

// Model returns the GPU's product name.
func (d *Device) Model() string {
	name, err := d.gpu.Name()
	if err != nil {
		return "unknown GPU"
	}
	return name
}

// UUID returns the GPU's UUID as NVIDIA's tools write it after "GPU-".
func (d *Device) UUID() (string, error) {
	id, err := d.gpu.UUID()
	return id.String(), d.wrapped("UUID", err)
}

// MemInfo returns the GPU's free and total memory in bytes.
func (d *Device) MemInfo() (free, total int64, err error) {
	err = d.do(device.CallQuery, "memory info", func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, err
}

// Close destroys the context with everything in it. A lost context is left to the end of
// the process.
func (d *Device) Close() error {
	if d.lost.Load() != nil {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return d.context.Destroy()
}

// Trace calls fn for every later call, on the caller's goroutine; nil ends the trace.
func (d *Device) Trace(fn func(device.Call)) {
	if fn == nil {
		d.trace.Store(nil)
		return
	}
	d.trace.Store(&fn)
}

// Serialize turns programmatic dependent launch off for later launches and captures:
// each kernel begins after the previous one has ended. Tests use it to show that no
// result depends on the overlap.
func (d *Device) Serialize() { d.serial.Store(true) }

func (d *Device) see(c device.Call) {
	if fn := d.trace.Load(); fn != nil {
		(*fn)(c)
	}
}

// enter traces a call. If the device is lost it returns the error, and the caller must
// not call the driver.
func (d *Device) enter(c device.Call) error {
	d.see(c)
	if err := d.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// do runs call, which calls package cu, with the device's context current. name is for
// the error.
func (d *Device) do(kind device.CallKind, name string, call func() error) error {
	if err := d.enter(device.Call{Kind: kind}); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return d.wrapped("current context", err)
	}
	return d.wrapped(name, call())
}

// resultNumber returns the driver's error number in an error of package cu. The type of such
// an error is an int, and not exported.
func resultNumber(err error) (int64, bool) {
	if v := reflect.ValueOf(err); v.CanInt() {
		return v.Int(), true
	}
	return 0, false
}

// Alloc allocates zeroed device memory.
func (d *Device) Alloc(bytes int64) (device.Buffer, error) {
	b, err := d.Uncleared(bytes)
	if err != nil {
		return b, err
	}
	return b, d.do(device.CallAlloc, "clearing", func() error {
		if err := cu.MemsetD8(cu.DevicePtr(d.Address(b)), 0, bytes); err != nil {
			return err
		}
		return settle()
	})
}

// Uncleared allocates device memory of undefined content. It is an allocation of its own
// without padding, so that compute-sanitizer reports accesses past its end and reads of
// bytes that were never written.
func (d *Device) Uncleared(bytes int64) (b device.Buffer, err error) {
	if bytes <= 0 {
		return b, fmt.Errorf("%w: %d bytes asked for", device.ErrBadBuffer, bytes)
	}
	err = d.do(device.CallAlloc, "allocation", func() error {
		p, err := cu.MemAlloc(bytes)
		if err == nil {
			b = d.register(allocation{address: uint64(p), bytes: bytes})
		}
		return err
	})
	return b, err
}

// settle waits for the default stream. On it the driver clears and fills memory, and
// returns before that is done. Our streams do not wait for it, so without settle the
// driver could overwrite their results.
func settle() error { return cu.NoStream.Synchronize() }

// Load copies data to device memory.
func (d *Device) Load(data []byte) (device.Buffer, error) {
	b, err := d.Uncleared(int64(len(data)))
	if err != nil {
		return b, err
	}
	return b, d.do(device.CallRead, "upload", func() error {
		if err := cu.MemcpyHtoD(cu.DevicePtr(d.Address(b)), unsafe.Pointer(&data[0]), int64(len(data))); err != nil {
			return err
		}
		return settle()
	})
}

// Pinned allocates zeroed host memory that the GPU addresses too.
func (d *Device) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	if err := d.enter(device.Call{Kind: device.CallAlloc}); err != nil {
		return device.Buffer{}, nil, err
	}
	if bytes <= 0 {
		return device.Buffer{}, nil, fmt.Errorf("%w: %d bytes asked for", device.ErrBadBuffer, bytes)
	}
	if bytes >= leastMapped {
		return d.pinnedBesideSteps(bytes)
	}
	host, address, err := d.pinned(bytes)
	if err != nil {
		return device.Buffer{}, nil, err
	}
	data := unsafe.Slice((*byte)(host), bytes)
	clear(data)
	return d.register(allocation{address: address, bytes: bytes, host: host}), device.NewMapped(data, d.see), nil
}

// leastMapped is the size of pinned memory, in bytes, from which launches on other threads must not wait for it.
const leastMapped = 1 << 20

// pinnedBesideSteps maps memory and writes it once, so that all its pages exist, before the driver pins it. While the
// driver pins it holds a lock that launches need: for 64 MiB 24 ms if it makes the pages too, else 2.
func (d *Device) pinnedBesideSteps(bytes int64) (device.Buffer, *device.Mapped, error) {
	// Shared, as the driver's own: limits on private data do not count it.
	data, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		return device.Buffer{}, nil, fmt.Errorf("%w: pinned memory: %w", device.ErrOutOfMemory, err)
	}
	_ = unix.Madvise(data, unix.MADV_DONTDUMP)    // a core file holds no user's keys and values, nor their gigabytes
	for part := range slices.Chunk(data, 1<<20) { // a pause of the collector waits for each clear
		clear(part)
	}
	address, err := d.pin(data)
	if err != nil {
		return device.Buffer{}, nil, errors.Join(err, syscall.Munmap(data))
	}
	return d.register(allocation{address: address, bytes: bytes, pinned: data}), device.NewMapped(data, d.see), nil
}

// Read copies device memory to dst and waits for it.
func (d *Device) Read(dst []byte, b device.Buffer) error {
	if int64(len(dst)) != b.Bytes() || len(dst) == 0 {
		return fmt.Errorf("%w: read of %d bytes into %d", device.ErrBadShape, b.Bytes(), len(dst))
	}
	return d.do(device.CallRead, "read", func() error {
		return cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), cu.DevicePtr(d.Address(b)), int64(len(dst)))
	})
}

// register makes the handle of an allocation.
func (d *Device) register(a allocation) device.Buffer {
	d.mu.Lock()
	defer d.mu.Unlock()
	memory := append([]allocation(nil), *d.memory.Load()...)
	id := uint32(len(memory))
	if n := len(d.free); n > 0 {
		id, d.free = d.free[n-1], d.free[:n-1]
		memory[id] = a
	} else {
		memory = append(memory, a)
	}
	d.memory.Store(&memory)
	return device.NewBuffer(d.number, id, a.bytes)
}

// Free frees b, which must be a whole allocation.
func (d *Device) Free(b device.Buffer) error {
	number, id, offset := b.Handle()
	d.mu.Lock()
	memory := append([]allocation(nil), *d.memory.Load()...)
	bad := number != d.number || id == 0 || int(id) >= len(memory) || offset != 0 ||
		memory[id].bytes != b.Bytes()
	var a allocation
	if !bad {
		a, memory[id] = memory[id], allocation{}
		d.free = append(d.free, id)
		d.memory.Store(&memory)
	}
	d.mu.Unlock()
	if bad {
		return fmt.Errorf("%w: free of buffer %d", device.ErrBadBuffer, id)
	}
	if a.shared {
		return d.enter(device.Call{Kind: device.CallFree})
	}
	if a.pinned != nil {
		if err := d.enter(device.Call{Kind: device.CallFree}); err != nil {
			return err
		}
		if err := d.unpin(a.pinned); err != nil {
			return err // the driver still has the pages, so nothing else may be mapped there
		}
		return syscall.Munmap(a.pinned)
	}
	return d.do(device.CallFree, "free", func() error {
		if a.host != nil {
			return cu.MemFreeHost(a.host)
		}
		return cu.MemFree(cu.DevicePtr(a.address))
	})
}

// Owns reports whether b is memory of this device.
func (d *Device) Owns(b device.Buffer) bool {
	number, _, _ := b.Handle()
	return number == d.number
}

// Address returns the device address of b.
func (d *Device) Address(b device.Buffer) uint64 {
	_, id, offset := b.Handle()
	return (*d.memory.Load())[id].address + uint64(offset)
}
