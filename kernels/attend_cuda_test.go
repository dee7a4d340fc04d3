//go:build cuda

package kernels

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
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
		"head size too large":          func(o *Attend) { o.KV.HeadDim = 264 },
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
	if err := (Sample{Vocab: sampleVocab + 1}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("vocabulary: %v, wants ErrBadShape", err)
	}
	if err := (GatherRows{Cols: 6}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("row: %v, wants ErrBadShape", err)
	}
	odd := KV{DType: BF16, Pages: 2, PageTokens: 1, Layers: 1, Heads: 1, HeadDim: 2}
	if err := (CopyPage{KV: odd}).CUDA(nil); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("page: %v, wants ErrBadShape", err)
	}
}
