//go:build cuda

package kernels

import (
	"fmt"
	"math"
	"math/bits"

	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// ENTRIES and WARPS of attend_splits.cuh: how many queries a block of threads takes, and a split's warps.
const (
	attendQueries = 8
	attendWarps   = 4
)

// attendKernels are the kernels by head size, rounded up to 32: names that are
// made once, as a launch allocates nothing.
var (
	attendKernels    = [...]string{"reel_attend_32", "reel_attend_64", "reel_attend_96", "reel_attend_128"}
	attendTwoKernels = [...]string{"reel_attend_32_two", "reel_attend_64_two", "reel_attend_96_two", "reel_attend_128_two"}

	attendDeferredKernels    = [...]string{"reel_attend_32_deferred", "reel_attend_64_deferred", "reel_attend_96_deferred", "reel_attend_128_deferred"}
	attendTwoDeferredKernels = [...]string{"reel_attend_32_two_deferred", "reel_attend_64_two_deferred", "reel_attend_96_two_deferred", "reel_attend_128_two_deferred"}
)

// CUDA launches the kernel of the rows' class.
func (o Attend) CUDA(q *cuda.Queue) error {
	if err := o.checkCUDA(); err != nil {
		return err
	}
	if o.Class == Prefill {
		return o.prefill(q)
	}
	g, teams := o.grid(q)
	kernel, turned := &attendKernels, &attendDeferredKernels
	if teams == 2 {
		kernel, turned = &attendTwoKernels, &attendTwoDeferredKernels
	}
	args, size := o.args(q, 1, 1, attendSplit), (o.KV.HeadDim-1)/32
	if o.Post.IsZero() {
		return cuda.Launch(q, kernel[size], g, args)
	}
	return cuda.Launch(q, turned[size], g, attendDeferredArgs{args, o.post().args(q, o.Q)})
}

// args are a kernel's arguments, for windows of so many rows, joined by so many, and
// such splits.
func (o Attend) args(q *cuda.Queue, window, join, split int) attendArgs {
	work, early := q.Address(o.Workspace), int32(0)
	if o.AfterQKV {
		early = 1
	}
	return attendArgs{
		q: q.Address(o.Q), pool: q.Address(o.KV.Data), out: q.Address(o.Out),
		arrived: work, partial: work + uint64(4*AttendSplitRows*o.Heads),
		slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position), blockTable: q.Address(o.Slots.BlockTable),
		t: int32(o.T), layer: int32(o.Layer), layers: int32(o.KV.Layers), heads: int32(o.Heads), kvHeads: int32(o.KV.Heads),
		dim: int32(o.KV.HeadDim), pages: int32(o.Slots.Pages), pageShift: int32(bits.TrailingZeros(uint(o.KV.PageTokens))),
		splits: int32(splitsOf(o.Slots.Context, split)), scale: o.Scale * float32(math.Log2E), window: int32(window), join: int32(join), visible: int32(o.visible()),
		group: int32(o.Heads / o.KV.Heads), afterQKV: early,
	}
}

// grid gives each row and KV head a block of threads, which takes one or two splits at
// once, and where that leaves multiprocessors idle as many more as they hold. No result
// depends on it.
func (o Attend) grid(q *cuda.Queue) (g cuda.Grid, teams int) {
	group := o.Heads / o.KV.Heads
	g = cuda.Grid{X: o.T, Y: o.KV.Heads * splitsOf(group, attendQueries), Z: 1, Dependent: true}
	blocks := q.SMs() // that there is place for
	if teams = 2; g.X*g.Y > blocks {
		teams, blocks = 1, 2*blocks
	}
	g.Threads = 32 * attendWarps * teams
	if o.T <= AttendSplitRows {
		g.Z = max(1, min(splitsOf(o.Slots.Context, attendSplit*teams), blocks/(g.X*g.Y)))
	}
	// The sums of two splits of each warp, and an AttendSum of the splits before.
	g.Shared = 4 * (2*attendWarps*teams + 3) * min(group, attendQueries) * ((o.KV.HeadDim + 63) / 64 * 64)
	return g, teams
}

// visible is how many positions a row sees at most.
func (o Attend) visible() int {
	if o.Window > 0 {
		return min(o.Window, math.MaxInt32)
	}
	return math.MaxInt32
}

// checkCUDA refuses what the kernels cannot read.
func (o Attend) checkCUDA() error {
	page, d := o.KV.PageTokens, o.KV.HeadDim
	if o.KV.DType != BF16 || d%8 != 0 || d > 32*len(attendKernels) || page&(page-1) != 0 || page > attendSplit || o.Heads%o.KV.Heads != 0 {
		return fmt.Errorf("%w: attention on a GPU over pages of %d tokens, %d heads over %d of size %d, KV type %d", device.ErrBadShape,
			page, o.Heads, o.KV.Heads, d, o.KV.DType)
	}
	if !o.Post.IsZero() && d%32 != 0 {
		return fmt.Errorf("%w: attention on a GPU that turns heads of %d, no multiple of 32", device.ErrBadShape, d)
	}
	if heads := o.KV.Data.Bytes() / int64(2*d); heads > math.MaxUint32 {
		return fmt.Errorf("%w: attention on a GPU over a pool of %d keys and values, which it counts in 32 bits", device.ErrBadShape, heads)
	}
	if want := AttendWorkspaceBytes(o.T, o.Heads, d, o.Slots.Context); o.Workspace.Bytes() < want {
		return fmt.Errorf("%w: attention has %d bytes to work in, wants %d", device.ErrBadShape, o.Workspace.Bytes(), want)
	}
	return nil
}
