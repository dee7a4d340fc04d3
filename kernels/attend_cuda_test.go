//go:build cuda

package kernels

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Launchers refuse dimensions that their kernels do not support, before they launch.
func TestCUDARefusesShapes(t *testing.T) {
	x := device.NewBuffer(1, 1, 4*64*2)
	kv := KV{DType: BF16, Pages: 8, PageTokens: 16, Layers: 2, Heads: 2, HeadDim: 32}
	kv.Data = device.NewBuffer(2, 1, kv.PageBytes()*int64(kv.Pages))
	good := Attend{Q: x, Rows: Rows{Slot: x, Position: x}, KV: kv, Out: x,
		Slots:     Slots{Count: 2, Pages: 4, Context: 64, BlockTable: x},
		Workspace: device.NewBuffer(3, 1, AttendWorkspaceBytes(AttendSplitRows, 2, 32, 64)), T: 1, Heads: 2}
	if err := good.checkCUDA(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *Attend){
		"float32 keys": func(o *Attend) { o.KV.DType = F32 },
		"too small a workspace": func(o *Attend) {
			o.Workspace = o.Workspace.Slice(0, AttendWorkspaceBytes(1, 2, 32, 64)-4)
		},
		"no workspace":                 func(o *Attend) { o.Workspace = device.Buffer{} },
		"head size":                    func(o *Attend) { o.KV.HeadDim = 12 },
		"wide heads of odd size":       func(o *Attend) { o.KV.HeadDim = 264 },
		"head size too large":          func(o *Attend) { o.KV.HeadDim = 528 },
		"wide heads in float32":        func(o *Attend) { o.KV.HeadDim, o.KV.DType = 512, F32 },
		"wide heads, deferred RoPE":    func(o *Attend) { o.KV.HeadDim, o.Post.RoPE = 512, x },
		"wide heads, rounded":          func(o *Attend) { o.KV.HeadDim, o.Handover.Rounded = 512, x },
		"wide heads, small workspace":  func(o *Attend) { o.KV.HeadDim, o.Workspace = 512, o.Workspace.Slice(0, 4096) },
		"sinks from a position on":     func(o *Attend) { o.Sinks, o.First = x, 1 },
		"softcap from a position on":   func(o *Attend) { o.Softcap, o.First = 1, 1 },
		"head size with deferred RoPE": func(o *Attend) { o.KV.HeadDim, o.Post.RoPE = 24, x },
		"page size that is no power":   func(o *Attend) { o.KV.PageTokens = 24 },
		"page too large":               func(o *Attend) { o.KV.PageTokens = 512 },
		"heads that do not divide":     func(o *Attend) { o.KV.Heads = 4 },
		"pool too large":               func(o *Attend) { o.KV.Data = device.NewBuffer(1, 1, 64<<32) },
	} {
		o := good
		change(&o)
		if err := o.CUDA(nil); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
	byLayer := good
	byLayer.KV = KVLayers{{Heads: 3, HeadDim: 32}, good.KV.layer()}.Of(good.KV, 1) // at 3/2 of a layer's size
	latent := good
	latent.KV.Heads, latent.KV.Values = 1, 16
	wide, first, rows := latent, latent, HeadProduct{W: Weight{Rows: 24, Cols: 16, Layout: Fragments}, Heads: 3}
	wide.KV.HeadDim, first.First = 592, 1
	for name, op := range map[string]interface{ CUDA(*cuda.Queue) error }{"layers at no multiple of their size": byLayer,
		"latents of 592": wide, "latents from a position on": first, "heads of 8 rows": rows,
		"products of c of 20 rows":       LatentQKV{KV: KV{DType: BF16}, Q: Weight{Rows: 32}, C: Weight{Rows: 20}},
		"keys and values at no multiple": QKV{KV: byLayer.KV}} {
		if err := op.CUDA(nil); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
	if err := (Sample{Vocab: sampleVocab + 1}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("vocabulary: %v, wants ErrBadShape", err)
	}
	if err := (GatherRows{Cols: 6}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("row: %v, wants ErrBadShape", err)
	}
	if err := (Vector{Cols: 6}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("vector: %v, wants ErrBadShape", err)
	}
	odd := KV{DType: BF16, Pages: 2, PageTokens: 1, Layers: 1, Heads: 1, HeadDim: 2}
	if err := (CopyPage{KV: odd}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("page: %v, wants ErrBadShape", err)
	}
}

// Blocks of many rows have a ring that holds a split, and no more shared memory than there is, for all heads and rows
// that have kernels.
func TestAttendManyRing(t *testing.T) {
	const bytes = 227 << 10
	for _, d := range []int{8, 32, 64, 80, 96, 128} {
		for _, group := range []int{1, 2, 7, 8, 12} {
			for _, rows := range []int{9, 64, 256, mostManyRows} {
				blocks, stages, shared := Attend{KV: KV{Heads: 2, HeadDim: d}, Heads: 2 * group, T: rows}.manyRing(bytes)
				if stages < attendManyLeastStages || stages > attendManyMostStages || blocks < 1 {
					t.Errorf("%d rows, %d heads of %d: %d blocks with %d stages", rows, group, d, blocks, stages)
				}
				if all := blocks * (shared + attendManyStatic + 1<<10); all > bytes+1<<10 {
					t.Errorf("%d rows, %d heads of %d: %d blocks take %d bytes", rows, group, d, blocks, all)
				}
			}
		}
	}
}

// Blocks of wide heads that merge together wait for each other, so each has an SM; others may be two on one.
func TestCUDAWideHeadsMergeTogether(t *testing.T) {
	const sms = 132
	for _, s := range []struct {
		rows, heads, kvHeads, dim, context int
		together                           bool
	}{{1, 8, 4, 256, 2048, true}, {1, 4, 1, 256, 32768, true}, {1, 9, 1, 256, 4400, true}, {1, 10, 1, 192, 16384, true},
		{8, 16, 8, 256, 8192, true}, {64, 8, 4, 256, 2048, false}, {33, 9, 1, 256, 4400, true}, {34, 9, 1, 256, 4400, false},
		{1, 8, 4, 256, 60, false}, {1, 8, 4, 128, 2048, false}} {
		o := Attend{T: s.rows, Heads: s.heads, KV: KV{Heads: s.kvHeads, HeadDim: s.dim}, Slots: Slots{Context: s.context}}
		g, _, together := o.grid(sms, true)
		blocks := g.X * g.Y * g.Z
		if together != s.together || together && blocks > sms || blocks > 2*sms || g.AllShared {
			t.Errorf("%+v: %d x %d x %d blocks, together: %t", s, g.X, g.Y, g.Z, together)
		}
		if _, _, together := o.grid(sms, false); together {
			t.Errorf("%+v: blocks merge together where they may not", s)
		}
	}
}

// Blocks process two splits at once where there are kernels for it and SMs for all blocks. With sinks too: then one block
// has all positions of a window of 128, and no sums are merged.
func TestCUDAAttendTakesTwoSplits(t *testing.T) {
	codes := Handover{DType: Q4_K}
	sinks := device.NewBuffer(1, 1, 4*64)
	for _, s := range []struct {
		rows, kvHeads, dim int
		sinks              device.Buffer
		softcap            float32
		handover           Handover
		splits             int
		name               string
	}{
		{1, 8, 64, sinks, 0, Handover{}, 2, "reel_attend_64_logits_two"},
		{1, 8, 48, device.Buffer{}, 30, Handover{}, 2, "reel_attend_64_logits_two"},
		{8, 8, 64, sinks, 0, Handover{}, 2, "reel_attend_64_logits_two"},
		{1, 8, 64, sinks, 0, codes, 2, "reel_attend_64_logits_two"}, // a single row hands nothing over
		{8, 8, 64, sinks, 0, codes, 1, "reel_attend_64_logits"},
		{32, 8, 64, sinks, 0, Handover{}, 1, "reel_attend_64_logits"},
		{1, 8, 128, sinks, 0, Handover{}, 1, "reel_attend_128_logits"},
		{1, 8, 128, device.Buffer{}, 0, Handover{}, 2, "reel_attend_128_two"},
		{1, 8, 256, device.Buffer{}, 0, Handover{}, 1, "reel_attend_256"},
	} {
		o := Attend{T: s.rows, Heads: 8 * s.kvHeads, KV: KV{Heads: s.kvHeads, HeadDim: s.dim},
			Slots: Slots{Context: 2048}, Sinks: s.sinks, Softcap: s.softcap, Handover: s.handover}
		g, splits, _ := o.grid(132, true)
		if name := attendBySize[(s.dim-1)/32].of(splits, o.hasLogits()).plain; splits != s.splits || name != s.name ||
			g.Threads != 128*splits {
			t.Errorf("%d rows, heads of %d: %s, %d splits, %d threads; wants %s", s.rows, s.dim, name, splits, g.Threads, s.name)
		}
	}
}
