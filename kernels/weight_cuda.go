//go:build cuda

package kernels

import (
	"fmt"

	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// dependentLaunch lets a kernel begin, and read its first weights, before the one
// before it has ended. Results do not depend on it, which a test shows by turning it off.
var dependentLaunch = true

// place has a GPU pack a weight; other devices hold it as it is.
func place(m device.Memory, w Weight, data []byte) (Weight, error) {
	d, ok := m.(device.Device)
	if !ok || d.Name() != "cuda" {
		return keep(m, w, data)
	}
	p := Pack{DType: w.DType, Rows: w.Rows, Cols: w.Cols}
	if p.Cols%tileCols != 0 {
		return Weight{}, p.Check()
	}
	var err error
	if p.Src, err = d.Load(data); err != nil {
		return Weight{}, err
	}
	releases := []func() error{func() error { return d.Free(p.Src) }}
	if p.Dst, err = d.Alloc(p.packed().bytes()); err == nil {
		if err = launchOnce(d, p); err != nil {
			releases = append(releases, func() error { return d.Free(p.Dst) })
		}
	}
	if freed := device.GiveBack(releases...); err == nil {
		err = freed
	}
	if err != nil {
		return Weight{}, fmt.Errorf("pack weight [%d][%d]: %w", w.Rows, w.Cols, err)
	}
	return p.packed(), nil
}

// launchOnce runs one op and waits for it.
func launchOnce(d device.Device, op device.Op) error {
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	if err = s.Launch(op); err == nil {
		err = s.Synchronize()
	}
	if destroyed := s.Destroy(); err == nil {
		err = destroyed
	}
	return err
}

// packArgs is PackArgs of pack.cu.
type packArgs struct {
	src, dst   uint64
	rows, cols int32
}

// CUDA packs 16 bytes a thread.
func (o Pack) CUDA(q *cuda.Queue) error {
	name := "reel_pack_16"
	if o.DType == F32 {
		name = "reel_pack_32"
	}
	n := o.packed().bytes() / 16
	return cuda.Launch(q, name, cuda.Grid{X: blocksFor(q, n), Threads: elementThreads}, packArgs{
		src: q.Address(o.Src), dst: q.Address(o.Dst), rows: int32(o.Rows), cols: int32(o.Cols)})
}

// activations is Activations of common.cuh: n rows of x; where rows is there, row
// t is x[rows[t]].
type activations struct {
	x, norm, rows uint64
	cols, n       int32
	eps           float32
	_             int32
}

// variant is one of the kernels of a product. Which one runs changes no sum.
type variant struct {
	suffix  string
	tiles   int // row tiles of a block; 0: one unit
	tokens  int // token rows of a block
	shared  int // bytes of shared memory that the launch gives
	threads int
}

// The variants, as products.cuh has them.
var (
	narrow8  = variant{suffix: "_8", tokens: 8, threads: 512}
	narrow16 = variant{suffix: "_16", tokens: 16, threads: 512}
	wide32   = variant{suffix: "_64", tiles: 4, tokens: 32, shared: 41472, threads: 512}
	wide64   = variant{suffix: "_512", tiles: 16, tokens: 64, shared: 98560, threads: 512}
)

// variantFor chooses by the number of token rows alone.
func variantFor(n int) *variant {
	switch {
	case n <= narrow8.tokens:
		return &narrow8
	case n <= narrow16.tokens:
		return &narrow16
	case n <= 64:
		return &wide32
	}
	return &wide64
}

// launchProduct launches the kernel `name` over n token rows and `units` units of
// `tiles` row tiles each.
func launchProduct[T any](q *cuda.Queue, name string, n, units, tiles int, args T, weights ...Weight) error {
	kind, err := elementsOf(weights)
	if err != nil {
		return err
	}
	v := variantFor(n)
	g := cuda.Grid{X: units, Threads: v.threads, Shared: v.shared, Dependent: dependentLaunch}
	if v.tiles > 0 {
		perBlock := v.tiles / tiles
		g.X, g.Y = (n+v.tokens-1)/v.tokens, (units+perBlock-1)/perBlock
	}
	return cuda.Launch(q, name+kind+v.suffix, g, args)
}

// elementsOf is the part of a kernel's name that says what the weights hold.
func elementsOf(weights []Weight) (string, error) {
	for _, w := range weights {
		if w.Layout != Fragments || w.DType == F32 || w.DType != weights[0].DType {
			return "", fmt.Errorf("%w: weights of an op must all be packed, and all bfloat16 or all float16", device.ErrBadShape)
		}
	}
	if weights[0].DType == F16 {
		return "_f16", nil
	}
	return "_bf16", nil
}

// tilesOf is how many row tiles rows make.
func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }
