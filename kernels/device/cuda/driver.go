//go:build cuda

// Package cuda is the device of an NVIDIA GPU. It uses gorgonia.org/cu, and cgo for the
// driver calls that cu lacks: capture, instantiate, replay, dependent launch and pinned
// memory.
package cuda

/*
#cgo LDFLAGS: -Wl,--wrap=cuInit
#include <cuda.h>
#include <stdint.h>
#include <time.h>

CUresult __real_cuInit(unsigned flags);

static CUresult reel_init(void) { return __real_cuInit(0); }

// Each function first makes the context current on the calling thread. With another
// context current, a call would silently work on another device.

static CUresult reel_load_module(CUcontext c, CUmodule *m, const void *image) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuModuleLoadFatBinary(m, image);
}

static CUresult reel_launch(CUcontext c, CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads,
                            unsigned shared, unsigned cluster, CUstream s, int dependent, void *args) {
	CUresult r = cuCtxSetCurrent(c);
	if (r) return r;
	CUlaunchAttribute at[2];
	CUlaunchConfig config = {0};
	if (dependent) {
		at[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		at[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;
	}
	if (cluster > 1) {
		at[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		CUlaunchAttributeValue of = {.clusterDim = {cluster, 1, 1}};
		at[config.numAttrs++].value = of;
	}
	config.gridDimX = x; config.gridDimY = y; config.gridDimZ = z;
	config.blockDimX = threads; config.blockDimY = 1; config.blockDimZ = 1;
	config.sharedMemBytes = shared;
	config.hStream = s;
	config.attrs = at;
	void *params[1] = {args};
	return cuLaunchKernelEx(&config, f, params, 0);
}

static CUresult reel_allow_shared(CUcontext c, CUfunction f, int bytes) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult reel_prefer_shared(CUcontext c, CUfunction f, int percent) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent);
}

// reel_block_shared gets the shared memory of an SM, and of a block of f without its dynamic part.
static CUresult reel_block_shared(CUcontext c, CUfunction f, int *sm, int *block) {
	CUdevice d;
	int reserved = 0;
	CUresult r = cuCtxSetCurrent(c);
	r = r ? r : cuCtxGetDevice(&d);
	r = r ? r : cuDeviceGetAttribute(sm, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, d);
	r = r ? r : cuDeviceGetAttribute(&reserved, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, d);
	r = r ? r : cuFuncGetAttribute(block, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
	*block += reserved;
	return r;
}

static CUresult reel_begin(CUcontext c, CUstream s) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static CUresult reel_end(CUcontext c, CUstream s, CUgraph *g, size_t *nodes) {
	*g = 0; *nodes = 0;
	CUresult r = cuCtxSetCurrent(c);
	if (!r) r = cuStreamEndCapture(s, g);
	if (!r && *g) r = cuGraphGetNodes(*g, 0, nodes);
	return r;
}

static CUresult reel_instantiate(CUcontext c, CUgraph g, CUgraphExec *e) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuGraphInstantiateWithFlags(e, g, 0);
}

static CUresult reel_upload(CUcontext c, CUgraphExec e, CUstream s) {
	CUresult r = cuCtxSetCurrent(c);
	if (!r) r = cuGraphUpload(e, s);
	return r ? r : cuStreamSynchronize(s);
}

static CUresult reel_replay(CUcontext c, CUgraphExec e, CUstream s) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuGraphLaunch(e, s);
}

static CUresult reel_graph_destroy(CUcontext c, CUgraph g) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuGraphDestroy(g);
}

static CUresult reel_exec_destroy(CUcontext c, CUgraphExec e) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuGraphExecDestroy(e);
}

static CUresult reel_record(CUcontext c, CUstream s, CUdeviceptr at, unsigned number) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuStreamWriteValue32(s, at, number, CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult reel_wait(CUcontext c, CUstream s, CUdeviceptr at, unsigned number) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuStreamWaitValue32(s, at, number, CU_STREAM_WAIT_VALUE_GEQ);
}

static int64_t reel_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// reel_await polls a word until it has a number or a later one, for some nanoseconds at most, and returns whether it has.
static int reel_await(const uint32_t *word, uint32_t number, int64_t limit) {
	for (int64_t end = reel_now() + limit; reel_now() < end;)
		for (int i = 0; i < 1024; i++)
			if ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - number) >= 0) return 1;
	return 0;
}

static CUresult reel_stream_query(CUcontext c, CUstream s) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuStreamQuery(s);
}

static CUresult reel_stream_synchronize(CUcontext c, CUstream s) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuStreamSynchronize(s);
}

static CUresult reel_synchronize(CUcontext c) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuCtxSynchronize();
}

static CUresult reel_pinned(CUcontext c, size_t bytes, void **host, CUdeviceptr *device) {
	CUresult r = cuCtxSetCurrent(c);
	if (!r) r = cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	return r ? r : cuMemHostGetDevicePointer(device, *host, 0);
}

static CUresult reel_address(CUcontext c, void *host, CUdeviceptr *device) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuMemHostGetDevicePointer(device, host, 0);
}

static CUresult reel_register(CUcontext c, void *host, size_t bytes, CUdeviceptr *device) {
	CUresult r = cuCtxSetCurrent(c);
	if (r) return r;
	r = cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (r) return r;
	r = cuMemHostGetDevicePointer(device, host, 0);
	if (r) cuMemHostUnregister(host);
	return r;
}

static CUresult reel_unregister(CUcontext c, void *host) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuMemHostUnregister(host);
}

static CUresult reel_copy(CUcontext c, CUstream s, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
	CUresult r = cuCtxSetCurrent(c);
	return r ? r : cuMemcpyAsync(to, from, bytes, s);
}

static const char *reel_error(CUresult r) {
	const char *s = 0;
	return cuGetErrorName(r, &s) || !s ? "unknown" : s;
}
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"reel.internal/reel/kernels/device"
)

// contextOf, functionOf and streamOf convert cu's types to this file's C types, which are
// the same pointers.
func contextOf(c cu.CUContext) C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&c)) }
func functionOf(f cu.Function) C.CUfunction {
	return *(*C.CUfunction)(unsafe.Pointer(&f))
}
func streamOf(s cu.Stream) C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s)) }

// sticky holds the results after which a context is lost.
var sticky = map[C.CUresult]bool{
	C.CUDA_ERROR_ILLEGAL_ADDRESS: true, C.CUDA_ERROR_LAUNCH_FAILED: true, C.CUDA_ERROR_ASSERT: true,
	C.CUDA_ERROR_HARDWARE_STACK_ERROR: true, C.CUDA_ERROR_ILLEGAL_INSTRUCTION: true,
	C.CUDA_ERROR_MISALIGNED_ADDRESS: true, C.CUDA_ERROR_INVALID_ADDRESS_SPACE: true,
	C.CUDA_ERROR_INVALID_PC: true, C.CUDA_ERROR_LAUNCH_TIMEOUT: true,
	C.CUDA_ERROR_ECC_UNCORRECTABLE: true, C.CUDA_ERROR_CONTEXT_IS_DESTROYED: true,
}

// failure converts a driver's result to an error of package device. A sticky result marks
// the device as lost. name is the call's, for the error.
func (d *Device) failure(name string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	err := fmt.Errorf("cuda: %s: %s", name, C.GoString(C.reel_error(r)))
	switch {
	case sticky[r]:
		err = fmt.Errorf("%w: %w", device.ErrSticky, err)
		d.lost.Store(&err)
	case r == C.CUDA_ERROR_OUT_OF_MEMORY:
		err = fmt.Errorf("%w: %w", device.ErrOutOfMemory, err)
	case r == C.CUDA_ERROR_DEVICE_UNAVAILABLE || r == C.CUDA_ERROR_SYSTEM_NOT_READY:
		err = fmt.Errorf("%w: %w", device.ErrBusy, err)
	case r == C.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || r == C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
		r == C.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
		err = fmt.Errorf("%w: %w", device.ErrInvalidated, err)
	}
	return err
}

// wrapped is failure for an error of package cu. It wraps any other error as it is.
func (d *Device) wrapped(name string, err error) error {
	if err == nil {
		return nil
	}
	n, ok := resultNumber(err)
	if !ok {
		return fmt.Errorf("cuda: %s: %w", name, err)
	}
	return d.failure(name, C.CUresult(n))
}

// Init starts the driver. Later calls do nothing, and failed ones may be repeated. Errors: [device.ErrBusy] while the
// machine sets up its GPUs; and what the driver says, without a GPU for example.
func Init() error {
	r := C.reel_init()
	switch r {
	case C.CUDA_SUCCESS:
		return nil
	case C.CUDA_ERROR_SYSTEM_NOT_READY:
		return fmt.Errorf("%w: the driver refuses cuInit: %s", device.ErrBusy, C.GoString(C.reel_error(r)))
	}
	return fmt.Errorf("cuda: the driver refuses cuInit: %s", C.GoString(C.reel_error(r)))
}

// loadModule loads an image of kernels. Package cu would copy it twice.
func (d *Device) loadModule(image []byte) (m cu.Module, err error) {
	var loaded C.CUmodule
	err = d.failure("kernels for this GPU", C.reel_load_module(contextOf(d.context), &loaded, unsafe.Pointer(&image[0])))
	return *(*cu.Module)(unsafe.Pointer(&loaded)), err
}

// defaultShared is the dynamic shared memory in bytes up to which a kernel needs no attribute.
// The driver allows 48 KiB, a kernel's static shared memory included.
const defaultShared = 20 << 10

// allowShared lets launches of f ask for this many bytes of dynamic shared memory.
func (d *Device) allowShared(f cu.Function, bytes int) error {
	return d.failure("shared memory of a kernel", C.reel_allow_shared(contextOf(d.context), functionOf(f), C.int(bytes)))
}

// preferShared gives blocks of f this part of an SM's memory as shared memory, in percent, at the cost of L1.
func (d *Device) preferShared(f cu.Function, percent int) error {
	return d.failure("shared memory of a kernel",
		C.reel_prefer_shared(contextOf(d.context), functionOf(f), C.int(percent)))
}

// blockShared asks for the shared memory of an SM and of a block of f.
func (d *Device) blockShared(f *function) error {
	var sm, block C.int
	err := d.failure("shared memory of a kernel",
		C.reel_block_shared(contextOf(d.context), functionOf(f.Function), &sm, &block))
	f.sm, f.block = int(sm), int(block)
	return err
}

// launch launches f on s with the struct at args as its only parameter.
func (d *Device) launch(f cu.Function, g Grid, s *stream, args unsafe.Pointer) error {
	pdl := C.int(0)
	if g.Dependent {
		pdl = 1
	}
	return d.failure("launch", C.reel_launch(contextOf(d.context), functionOf(f),
		C.uint(max(1, g.X)), C.uint(max(1, g.Y)), C.uint(max(1, g.Z)), C.uint(g.Threads),
		C.uint(g.Shared), C.uint(g.Cluster), streamOf(s.s), pdl, args))
}

// pinned allocates pinned memory and returns its addresses on the host and the device.
func (d *Device) pinned(bytes int64) (host unsafe.Pointer, address uint64, err error) {
	var p C.CUdeviceptr
	err = d.failure("pinned memory", C.reel_pinned(contextOf(d.context), C.size_t(bytes), &host, &p))
	return host, uint64(p), err
}

// pin makes the GPU address memory of the host too, and returns its address there.
func (d *Device) pin(data []byte) (address uint64, err error) {
	var p C.CUdeviceptr
	err = d.failure("pinned memory", C.reel_register(contextOf(d.context), unsafe.Pointer(&data[0]), C.size_t(len(data)), &p))
	return uint64(p), err
}

// unpin ends pin.
func (d *Device) unpin(data []byte) error {
	return d.failure("free", C.reel_unregister(contextOf(d.context), unsafe.Pointer(&data[0])))
}

// copy enqueues a copy between device memory and pinned host memory, in either direction.
func (s *stream) copy(to, from uint64, bytes int64) error {
	return s.d.failure("copy", C.reel_copy(contextOf(s.d.context), streamOf(s.s), C.CUdeviceptr(to),
		C.CUdeviceptr(from), C.size_t(bytes)))
}

func (s *stream) beginCapture() error {
	return s.d.failure("begin capture", C.reel_begin(contextOf(s.d.context), streamOf(s.s)))
}

// endCapture returns the captured graph. It may have no nodes: to the driver an empty
// graph is like any other.
func (s *stream) endCapture() (*graph, error) {
	var g C.CUgraph
	var nodes C.size_t
	err := s.d.failure("end capture", C.reel_end(contextOf(s.d.context), streamOf(s.s), &g, &nodes))
	made := &graph{d: s.d, g: g, nodes: int(nodes)}
	if err != nil && g != nil {
		_ = made.Destroy()
	}
	return made, err
}

// graph is a CUgraph.
type graph struct {
	d     *Device
	g     C.CUgraph
	nodes int
}

// exec is a CUgraphExec.
type exec struct {
	d         *Device
	e         C.CUgraphExec
	nodes     int
	destroyed bool
}

// Instantiate makes an exec.
func (g *graph) Instantiate() (device.Exec, error) {
	if err := g.d.enter(device.Call{Kind: device.CallInstantiate}); err != nil {
		return nil, err
	}
	x := &exec{d: g.d, nodes: g.nodes}
	if err := g.d.failure("instantiate", C.reel_instantiate(contextOf(g.d.context), g.g, &x.e)); err != nil {
		return nil, err
	}
	return x, nil
}

// Destroy frees the graph. Its execs stay.
func (g *graph) Destroy() error {
	if err := g.d.enter(device.Call{Kind: device.CallDestroy}); err != nil {
		return err
	}
	return g.d.failure("destroy graph", C.reel_graph_destroy(contextOf(g.d.context), g.g))
}

// Destroy frees the exec, which must have no replay pending.
func (x *exec) Destroy() error {
	if x.destroyed {
		return fmt.Errorf("%w: graph destroyed twice", device.ErrDestroyed)
	}
	if err := x.d.enter(device.Call{Kind: device.CallDestroy}); err != nil {
		return err
	}
	x.destroyed = true
	return x.d.failure("destroy exec", C.reel_exec_destroy(contextOf(x.d.context), x.e))
}

func (s *stream) upload(x *exec) error {
	return s.d.failure("upload", C.reel_upload(contextOf(s.d.context), x.e, streamOf(s.s)))
}

func (s *stream) replay(x *exec) error {
	return s.d.failure("replay", C.reel_replay(contextOf(s.d.context), x.e, streamOf(s.s)))
}

func (s *stream) record(e *event) error {
	return s.d.failure("record",
		C.reel_record(contextOf(s.d.context), streamOf(s.s), C.CUdeviceptr(e.address), C.uint(e.number)))
}

func (s *stream) wait(e *event) error {
	return s.d.failure("wait",
		C.reel_wait(contextOf(s.d.context), streamOf(s.s), C.CUdeviceptr(e.address), C.uint(e.number)))
}

// addressOf returns the GPU's address of memory that another GPU's context has pinned for all.
func (d *Device) addressOf(data []byte) (address uint64, err error) {
	var p C.CUdeviceptr
	err = d.failure("address of pinned memory", C.reel_address(contextOf(d.context), unsafe.Pointer(&data[0]), &p))
	return uint64(p), err
}

// await polls until the event's last record has been written, for limit at most, and reports whether it has.
func (e *event) await(limit time.Duration) bool {
	return e.reached() ||
		C.reel_await((*C.uint32_t)(unsafe.Pointer(e.host)), C.uint32_t(e.number), C.int64_t(limit)) != 0
}

// stopped reports whether the stream has nothing to do, or has failed.
func (s *stream) stopped() bool {
	return C.reel_stream_query(contextOf(s.d.context), streamOf(s.s)) != C.CUDA_ERROR_NOT_READY
}

// failed returns the error that stopped the stream, or nil if it runs or is done.
func (s *stream) failed() error {
	r := C.reel_stream_query(contextOf(s.d.context), streamOf(s.s))
	if r == C.CUDA_ERROR_NOT_READY {
		return nil
	}
	return s.d.failure("query", r)
}

func (s *stream) synchronize() error {
	return s.d.failure("stream synchronise", C.reel_stream_synchronize(contextOf(s.d.context), streamOf(s.s)))
}

func (d *Device) synchronize() error {
	return d.failure("device-wide synchronise", C.reel_synchronize(contextOf(d.context)))
}
