//go:build cuda

package kernels

import (
	"fmt"
	"math"
	"math/bits"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Constants of attend_latent.cu.
const (
	latentKeys    = 64
	latentEntries = 16
	latentDim     = mostLatentKey
	latentValues  = mostLatent
	latentShared  = 2*((latentKeys+latentEntries)*(latentDim+8)+latentEntries*(latentKeys+8)) + 4*2*4*latentEntries
)

// latent launches attention over keys that hold their values. All classes have one kernel.
func (o Attend) latent(q *cuda.Queue) error {
	if err := o.checkLatent(); err != nil {
		return err
	}
	workspace, splits := q.Address(o.Workspace), splitsOf(o.Slots.Context, latentSplit)
	g := cuda.Grid{X: o.T, Y: splitsOf(o.Heads, latentEntries), Z: 1, Threads: 32 * attendWarps, Shared: latentShared,
		AllShared: true, Dependent: true}
	if o.T <= AttendSplitRows {
		g.Z = max(1, min(splits, 2*q.SMs()/(g.X*g.Y)))
	}
	return cuda.Launch(q, "reel_attend_latent", g, attendLatentArgs{
		q: q.Address(o.Q), pool: q.Address(o.KV.Data), out: q.Address(o.Out), arrived: workspace,
		partial: workspace + uint64(attendCounterBytes(o.Heads)), slot: q.Address(o.Rows.Slot),
		position: q.Address(o.Rows.Position), blockTable: q.Address(o.Slots.BlockTable), pageBytes: o.KV.PageBytes(),
		layerStart: o.KV.LayerStart(o.Layer), t: int32(o.T), heads: int32(o.Heads), dim: int32(o.KV.HeadDim),
		values: int32(o.KV.Values), pages: int32(o.Slots.Pages),
		pageShift: int32(bits.TrailingZeros(uint(o.KV.PageTokens))), splits: int32(splits), visible: int32(o.visible()),
		logits: o.logits(q), scale: o.Scale * float32(math.Log2E)})
}

// checkLatent refuses dimensions that the kernel does not support.
func (o Attend) checkLatent() error {
	page, d := o.KV.PageTokens, o.KV.HeadDim
	if o.KV.DType != BF16 || o.KV.Heads != 1 || d%16 != 0 || d > latentDim || o.KV.Values%16 != 0 ||
		o.KV.Values > latentValues || page&(page-1) != 0 || o.First > 0 || o.KV.PageBytes()%16 != 0 {
		return fmt.Errorf("%w: latent attention on a GPU over pages of %d tokens, %d heads of %d elements, %d of them "+
			"values, from position %d on", device.ErrBadShape, page, o.KV.Heads, d, o.KV.Values, o.First)
	}
	if want := LatentWorkspaceBytes(o.T, o.Heads, o.KV.Values, o.Slots.Context); o.Workspace.Bytes() < want {
		return fmt.Errorf("%w: latent attention has a workspace of %d bytes, wants %d", device.ErrBadShape,
			o.Workspace.Bytes(), want)
	}
	return nil
}
