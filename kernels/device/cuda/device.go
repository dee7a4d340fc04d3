//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"reel/kernels/device"
)

// Device is one GPU: its context, its module of kernels and its memory. Any
// goroutine may call it; the engine and the roller do, each on its own thread.
type Device struct {
	number   uint32 // tells its buffers from another device's
	gpu      cu.Device
	context  cu.CUContext
	module   cu.Module
	sms      int
	capacity [2]int // compute capability
	lost     atomic.Pointer[error]
	trace    atomic.Pointer[func(device.Call)]
	serial   atomic.Bool // no kernel begins before the one before it has ended

	mu        sync.Mutex
	functions map[string]cu.Function
	memory    atomic.Pointer[[]allocation] // by Buffer id; copied when it changes
	free      []uint32
	words     []word // of events, not in use
}

// allocation is where a buffer lies.
type allocation struct {
	address uint64
	bytes   int64
	host    unsafe.Pointer // of pinned memory
}

var devices atomic.Uint32

// New opens GPU number gpu and loads fatbin, the module that holds every kernel.
func New(gpu int, fatbin []byte) (*Device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, err := cu.NumDevices()
	if err != nil || gpu >= n {
		return nil, fmt.Errorf("cuda: GPU %d is not there, %d are: %w", gpu, n, device.ErrBadBuffer)
	}
	// Numbers of host devices count from 1; these from the top.
	d := &Device{number: ^devices.Add(1), gpu: cu.Device(gpu), functions: map[string]cu.Function{}}
	d.memory.Store(&[]allocation{{}})
	if d.context, err = d.gpu.MakeContext(cu.SchedAuto); err != nil {
		return nil, d.wrapped("context", err)
	}
	if err := d.load(fatbin); err != nil {
		return nil, errors.Join(err, d.wrapped("destroy context", d.context.Destroy())) // who tries again makes another
	}
	return d, nil
}

// load asks what the GPU is and gives it the kernels, in a context that is current.
func (d *Device) load(fatbin []byte) (err error) {
	if d.sms, err = d.gpu.Attribute(cu.MultiprocessorCount); err != nil {
		return d.wrapped("multiprocessors", err)
	}
	if d.capacity[0], d.capacity[1], err = d.gpu.ComputeCapability(); err != nil {
		return d.wrapped("compute capability", err)
	}
	d.module, err = cu.LoadFatBinary(string(fatbin))
	return d.wrapped("kernels for this GPU", err)
}

// Name is "cuda".
func (d *Device) Name() string { return "cuda" }

// Capabilities are packed weights and the driver's count of free memory.
func (d *Device) Capabilities() device.Capabilities {
	return device.Capabilities{PacksWeights: true, FreeMemory: func() (int64, error) {
		free, _, err := d.MemInfo()
		return free, err
	}}
}

// Model is what the GPU calls itself.
func (d *Device) Model() string {
	name, err := d.gpu.Name()
	if err != nil {
		return "unknown GPU"
	}
	return name
}

// UUID tells the GPU from all others, as NVIDIA's tools write it after GPU-.
func (d *Device) UUID() (string, error) {
	id, err := d.gpu.UUID()
	return id.String(), d.wrapped("UUID", err)
}

// MemInfo is the GPU's free and total memory in bytes.
func (d *Device) MemInfo() (free, total int64, err error) {
	err = d.do(device.CallQuery, "memory info", func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	})
	return free, total, err
}

// Close destroys the context and all that is in it.
func (d *Device) Close() error {
	if d.lost.Load() != nil {
		return nil // a lost context goes with the process
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return d.context.Destroy()
}

// Trace has fn see every call from now on; nil ends it.
func (d *Device) Trace(fn func(device.Call)) {
	if fn == nil {
		d.trace.Store(nil)
		return
	}
	d.trace.Store(&fn)
}

// Serialize has no kernel begin, from the next launch or capture on, before the one
// before it has ended. No result depends on it: tests show that by it.
func (d *Device) Serialize() { d.serial.Store(true) }

func (d *Device) see(c device.Call) {
	if fn := d.trace.Load(); fn != nil {
		(*fn)(c)
	}
}

// enter notes a call. After the device was lost, no call is made.
func (d *Device) enter(c device.Call) error {
	d.see(c)
	if err := d.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// do makes calls of cu with the context current.
func (d *Device) do(kind device.CallKind, what string, call func() error) error {
	if err := d.enter(device.Call{Kind: kind}); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return d.wrapped("current context", err)
	}
	return d.wrapped(what, call())
}

// resultNumber is the driver's number behind an error of cu.
func resultNumber(err error) (int64, bool) {
	if v := reflect.ValueOf(err); v.CanInt() {
		return v.Int(), true
	}
	return 0, false
}

// Alloc takes bytes of zeroed device memory.
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

// Uncleared takes bytes of device memory that hold anything: an allocation of its
// own and no byte more, so that compute-sanitizer sees what an op does past its
// end, and what it reads before anything was written.
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

// settle waits for the default stream, on which the driver zeroes and fills
// memory: it returns from that before it is done, and our streams do not wait for
// that stream. What they wrote meanwhile would be lost.
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

// Pinned takes host memory that the GPU addresses too.
func (d *Device) Pinned(bytes int64) (device.Buffer, *device.Mapped, error) {
	if err := d.enter(device.Call{Kind: device.CallAlloc}); err != nil {
		return device.Buffer{}, nil, err
	}
	if bytes <= 0 {
		return device.Buffer{}, nil, fmt.Errorf("%w: %d bytes asked for", device.ErrBadBuffer, bytes)
	}
	host, address, err := d.pinned(bytes)
	if err != nil {
		return device.Buffer{}, nil, err
	}
	data := unsafe.Slice((*byte)(host), bytes)
	clear(data)
	return d.register(allocation{address, bytes, host}), device.NewMapped(data, d.see), nil
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

// Free gives b back.
func (d *Device) Free(b device.Buffer) error {
	number, id, offset := b.Handle()
	d.mu.Lock()
	memory := append([]allocation(nil), *d.memory.Load()...)
	bad := number != d.number || id == 0 || int(id) >= len(memory) || offset != 0 || memory[id].bytes != b.Bytes()
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
	return d.do(device.CallFree, "free", func() error {
		if a.host != nil {
			return cu.MemFreeHost(a.host)
		}
		return cu.MemFree(cu.DevicePtr(a.address))
	})
}

// Owns tells whether b is memory of this device.
func (d *Device) Owns(b device.Buffer) bool {
	number, _, _ := b.Handle()
	return number == d.number
}

// Address is where b lies in device memory.
func (d *Device) Address(b device.Buffer) uint64 {
	_, id, offset := b.Handle()
	return (*d.memory.Load())[id].address + uint64(offset)
}

// function finds a kernel by name.
func (d *Device) function(name string) (cu.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.functions[name]; ok {
		return f, nil
	}
	var f cu.Function
	err := d.do(device.CallQuery, "kernel "+name, func() (err error) {
		f, err = d.module.Function(name)
		return err
	})
	if err == nil {
		d.functions[name] = f
	}
	return f, err
}
