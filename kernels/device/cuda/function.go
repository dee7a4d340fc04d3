//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"reel.internal/reel/kernels/device"
)

// function is a kernel.
type function struct {
	cu.Function
	shared int // bytes of dynamic shared memory that a launch may ask for
	// percent is the part of an SM's memory that it wants as shared memory; 0: as the driver chooses.
	percent int
	// block is the shared memory in bytes that a block takes beside its dynamic part, sm what an SM has: 0 until they are
	// asked for.
	block, sm int
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
		err := d.do(device.CallQuery, "kernel "+name, func() error {
			module, err := d.moduleOf(name)
			if err == nil {
				f.Function, err = module.Function(name)
			}
			return err
		})
		if err != nil {
			return f.Function, err
		}
		d.functions[name] = f
	}
	return f.Function, d.prepare(f, g)
}

// moduleOf returns the module that has this kernel, and loads it first if it has to. Passes run op by op before anyone is
// served, so a step finds the modules of its kernels loaded. The caller holds d.mu, or is alone.
func (d *Device) moduleOf(kernel string) (cu.Module, error) {
	image := d.images.Image(kernel)
	if image == "" {
		return cu.Module{}, fmt.Errorf("no image has the kernel %s", kernel)
	}
	if m, ok := d.modules[image]; ok {
		return m, nil
	}
	data, err := d.images.Read(image)
	if err != nil {
		return cu.Module{}, err
	}
	m, err := d.loadModule(data)
	if err == nil {
		d.modules[image] = m
	}
	return m, err
}

// prepare sets the attributes that launches of f on g need and that no launch has set before.
func (d *Device) prepare(f *function, g Grid) error {
	if g.Shared > f.shared {
		if err := d.allowShared(f.Function, g.Shared); err != nil {
			return err
		}
		f.shared = g.Shared
	}
	percent, err := d.percent(f, g)
	if err != nil || percent <= f.percent {
		return err
	}
	f.percent = percent
	return d.preferShared(f.Function, percent)
}

// percent returns the part of an SM's memory that a launch wants as shared memory, or 0.
func (d *Device) percent(f *function, g Grid) (int, error) {
	switch {
	case g.AllShared:
		return 100, nil
	case g.AtOnce == 0:
		return 0, nil
	case f.sm == 0:
		if err := d.blockShared(f); err != nil {
			return 0, err
		}
	}
	return roomPercent(f.block+g.Shared, g.AtOnce, f.sm), nil
}

// roomPercent returns how many percent of an SM's shared memory so many blocks of so many bytes need. The driver takes
// the next larger of the sizes that the SM has.
func roomPercent(bytes, blocks, sm int) int { return min(100, (100*bytes*blocks+sm-1)/sm) }
