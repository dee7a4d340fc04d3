//go:build cuda

package kernels

import (
	"fmt"
	"math"
	"math/bits"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of attend_latent.cu, attend_latent_prefill.cu and attention/latent.cuh.
const (
	latentKeys          = 64
	latentEntries       = 16
	latentSlices        = 4
	latentWarps         = 8
	latentDim           = mostLatentKey
	latentValues        = mostLatent
	latentTile          = 64 // entries of a tile of a prompt: rows × query heads
	attendLatentThreads = 32 * latentWarps
	latentKeysBytes     = 2 * latentKeys * (latentDim + 8)
	latentWeights       = 2*latentEntries*(latentKeys+8) + 4*3*latentEntries
	latentShared        = 2*latentEntries*(latentDim+8) + latentWeights
	wideDim             = latentValues
	wideKeysBytes       = 2 * latentKeys * (wideDim + 8)
	wideShared          = 4*latentSlices*latentEntries*(latentKeys+8) + latentWeights // scores need more than queries
	latentTileBytes     = 3*2*latentTile*latentDim + 2*latentTile*(prefillKeys+8) + 4*2*latentTile
)

// latent launches attention over keys that hold their values. On Hopper rows of prompts have a kernel of their own.
func (o Attend) latent(q *cuda.Queue) error {
	if err := o.checkLatent(); err != nil {
		return err
	}
	if o.Class == Prefill && hopper(q) {
		return o.latentPrefill(q)
	}
	stages := 1
	if hopper(q) {
		stages = 2
	}
	g, args := o.latentRows(q, splitsOf(o.Heads, latentEntries), stages, latentShared, latentKeysBytes)
	return cuda.Launch(q, "reel_attend_latent", g, args)
}

// latentRows returns the grid and the arguments that the two kernels of generated rows have in common, with a number of
// blocks for each row. In shared memory a block has `stages` stages of `each` bytes, and `shared` other bytes.
func (o Attend) latentRows(q *cuda.Queue, blocks, stages, shared, each int) (cuda.Grid, attendLatentArgs) {
	g := cuda.Grid{X: o.T, Y: blocks, Z: 1, Threads: attendLatentThreads, Shared: shared + stages*each, Dependent: true}
	args := o.latentArgs(q, latentSplits(o.Slots.Context))
	args.stages, args.shareMerge = int32(stages), flag(tune.ShareMerge)
	if o.AfterQKV && o.Class == Decode {
		args.rows = int32(o.groupRows())
	}
	if o.T <= AttendSplitRows { // all blocks run at the same time: one has room on an SM
		g.Z = max(1, min(int(args.splits), q.SMs()/(g.X*g.Y)))
	}
	return g, args
}

// wide launches attention over heads of more than narrowHeads, of whatever class: keys and values are apart, and a block
// has the query heads of one KV head.
func (o Attend) wide(q *cuda.Queue) error {
	if o.Generated > 0 {
		return inTurn(q, o.generatedRows().wide, o.promptRows().wide)
	}
	if err := o.checkWide(); err != nil {
		return err
	}
	group, stages := o.Heads/o.KV.Heads, 1
	if tune.WideTogether && wideShared+2*wideKeysBytes <= sharedMemory(q) { // keys and values of a block at once
		stages = 2
	}
	g, args := o.latentRows(q, o.KV.Heads*splitsOf(group, latentEntries), stages, wideShared, wideKeysBytes)
	args.values, args.group, args.earliest, args.together = args.dim, int32(group), int32(o.First), 1
	args.valuesStart = o.KV.DType.Size() * int64(o.KV.Heads) * int64(o.KV.PageTokens) * int64(o.KV.HeadDim)
	if o.T > AttendSplitRows && o.Class == Prefill && group < latentEntries && tune.WideRows {
		args.together = int32(latentEntries / group)
		g.X = splitsOf(o.T, latentEntries/group)
	}
	return cuda.Launch(q, "reel_attend_wide", g, args)
}

// checkWide refuses dimensions that that kernel does not support.
func (o Attend) checkWide() error {
	page, d := o.KV.PageTokens, o.KV.HeadDim
	if o.KV.DType != BF16 || d%16 != 0 || d > wideDim || page&(page-1) != 0 || o.Heads%o.KV.Heads != 0 ||
		o.KV.PageBytes()%16 != 0 || !o.Post.IsZero() || !o.Handover.Rounded.IsZero() {
		return fmt.Errorf("%w: attention on a GPU over pages of %d tokens, %d heads over %d of size %d, KV type %d, with "+
			"deferred RoPE: %t, rounded: %t", device.ErrBadShape, page, o.Heads, o.KV.Heads, d, o.KV.DType, !o.Post.IsZero(),
			!o.Handover.Rounded.IsZero())
	}
	return o.checkWorkspace(LatentWorkspaceBytes(o.T, o.Heads, d, o.Slots.Context))
}

// latentPrefill launches the kernel of a prompt's rows. A tile has the rows whose heads are its entries, and if that
// leaves SMs idle, several blocks share its splits where the workspace holds them.
func (o Attend) latentPrefill(q *cuda.Queue) error {
	args := o.latentArgs(q, prefillSplits(o.Slots.Context))
	rows := latentTile / min(latentTile, o.Heads)
	args.rows = int32(rows)
	g := cuda.Grid{X: splitsOf(o.Heads, latentTile), Y: splitsOf(o.T, rows), Z: 1, Threads: attendLatentThreads,
		Shared: latentTileBytes, AllShared: true, Dependent: true}
	partials := int64(o.T*o.Heads) * int64(args.splits) * int64(o.KV.Values+2)
	if tune.ParallelSplits && g.X*g.Y <= AttendSplitRows*o.Heads &&
		attendCounterBytes(o.Heads)+4*partials <= o.Workspace.Bytes() {
		g.Z = max(1, min(int(args.splits), q.SMs()/(g.X*g.Y)))
	}
	return cuda.Launch(q, "reel_attend_latent_prefill", g, args)
}

// latentArgs returns the arguments of a kernel for contexts of so many splits.
func (o Attend) latentArgs(q *cuda.Queue, splits int) attendLatentArgs {
	workspace := q.Address(o.Workspace)
	return attendLatentArgs{
		q: q.Address(o.Q), pool: q.Address(o.KV.Data), out: q.Address(o.Out), arrived: workspace,
		partial: workspace + uint64(attendCounterBytes(o.Heads)), slot: q.Address(o.Rows.Slot),
		position: q.Address(o.Rows.Position), blockTable: q.Address(o.Slots.BlockTable), pageBytes: o.KV.PageBytes(),
		layerStart: o.KV.LayerStart(o.Layer), t: int32(o.T), heads: int32(o.Heads), dim: int32(o.KV.HeadDim),
		values: int32(o.KV.Values), pages: int32(o.Slots.Pages),
		pageShift: int32(bits.TrailingZeros(uint(o.KV.PageTokens))), splits: int32(splits), visible: int32(o.visible()),
		logits: o.logits(q), scale: o.Scale * float32(math.Log2E)}
}

// checkLatent refuses dimensions that the kernel does not support.
func (o Attend) checkLatent() error {
	page, d := o.KV.PageTokens, o.KV.HeadDim
	if o.KV.DType != BF16 || o.KV.Heads != 1 || d%16 != 0 || d > latentDim || o.KV.Values%16 != 0 ||
		o.KV.Values > latentValues || page&(page-1) != 0 || o.First > 0 || o.KV.PageBytes()%16 != 0 {
		return fmt.Errorf("%w: latent attention on a GPU over pages of %d tokens, %d heads of %d elements, %d of them "+
			"values, from position %d on", device.ErrBadShape, page, o.KV.Heads, d, o.KV.Values, o.First)
	}
	return o.checkWorkspace(LatentWorkspaceBytes(o.T, o.Heads, o.KV.Values, o.Slots.Context))
}
