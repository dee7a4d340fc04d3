//go:build cuda

package cuda

import (
	"gorgonia.org/cu"

	"reel.internal/reel/kernels/device"
)

// function is a kernel.
type function struct {
	cu.Function
	shared int  // bytes of dynamic shared memory that a launch may ask for
	all    bool // prefers shared memory to L1
}

// function returns the kernel of this name, which may then be launched on g. The driver keeps one bound of dynamic
// shared memory for all launches of a kernel, so it only rises: another thread may be about to launch the same kernel
// with more.
func (d *Device) function(name string, g Grid) (cu.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.functions[name]
	if !ok {
		f = &function{shared: defaultShared}
		err := d.do(device.CallQuery, "kernel "+name, func() (err error) {
			f.Function, err = d.module.Function(name)
			return err
		})
		if err != nil {
			return f.Function, err
		}
		d.functions[name] = f
	}
	return f.Function, d.prepare(f, g)
}

// prepare sets the attributes that launches of f on g need and that no launch has set before.
func (d *Device) prepare(f *function, g Grid) error {
	if g.Shared > f.shared {
		if err := d.allowShared(f.Function, g.Shared); err != nil {
			return err
		}
		f.shared = g.Shared
	}
	if g.AllShared && !f.all {
		if err := d.preferShared(f.Function); err != nil {
			return err
		}
		f.all = true
	}
	return nil
}
