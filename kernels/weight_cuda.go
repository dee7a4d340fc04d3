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
