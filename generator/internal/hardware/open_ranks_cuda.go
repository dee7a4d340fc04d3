//go:build cuda

package hardware

import (
	"errors"
	"fmt"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/protocol"
)

// ranks are the GPUs that share a model, with what each took before.
type ranks struct {
	gpus    []*gpu.Device
	watches []*gpuMemory
	slow    bool // they reach each other through the host's memory
}

// links are the values of --gpu-link.
var links = map[string]gpu.Link{"auto": gpu.AnyLink, "peer": gpu.PeerLink, "host": gpu.HostLink}

// openRanks opens the GPUs that share a model. Each has the same plan, so the one with the least memory decides.
func openRanks(o config.Options, watches []*gpuMemory) (Hardware, error) {
	r := ranks{watches: watches}
	for _, number := range o.Devices() {
		d, err := openGPU(number)
		if err != nil {
			return Hardware{}, errors.Join(err, r.close())
		}
		r.gpus = append(r.gpus, d)
	}
	all, err := gpu.NewRanks(r.gpus, links[o.GPULink], func(d *gpu.Device) device.Device {
		if d == r.gpus[len(r.gpus)-1] {
			return spoiled(d) // a device of tests fails on its last rank
		}
		return d
	})
	if errors.Is(err, gpu.ErrNoPeers) {
		err = config.Refuse(config.ErrConfig, "--gpus: %w: take GPUs that nvidia-smi topo -p2p w shows as OK, or --gpu-link host",
			err)
	}
	if err != nil {
		return Hardware{}, errors.Join(err, r.close())
	}
	r.slow = all.Capabilities().Ranks.Signals.Inbox == device.PinnedInbox
	h := Hardware{Device: all, Profile: r.profile(), Machine: r.describe(),
		OpenReader: func() (Reader, error) { return openReaders(o.Devices(), r.gpus...) }}
	if bytes, _ := r.taken(); bytes > 0 {
		h.Taken, h.Overhead = r.taken, bytes+laterOverhead
	}
	h.Available = func() (int64, error) {
		free, err := r.least(func(free, _ int64) int64 { return free })
		return h.Overhead - laterOverhead + free - free/32, err // free does not include the contexts
	}
	h.Whole = func() (int64, error) {
		total, err := r.least(func(_, total int64) int64 { return total })
		return total - total/32, err
	}
	return h, nil
}

// profile returns the profile of the GPUs: that of any GPU if they are of several kinds.
func (r ranks) profile() plan.Profile {
	first := plan.GPUProfile.On(r.gpus[0].Capability())
	for _, d := range r.gpus[1:] {
		if plan.GPUProfile.On(d.Capability()) != first {
			return plan.GPUProfile
		}
	}
	return first
}

// close gives the GPUs back.
func (r ranks) close() (err error) {
	for _, d := range r.gpus {
		err = errors.Join(err, d.Close())
	}
	return err
}

// taken returns the bytes of this process on the GPU where it has most, or 0 if one of them is unknown.
func (r ranks) taken() (most int64, by string) {
	for _, w := range r.watches {
		bytes, source := w.taken()
		if bytes == 0 {
			return 0, ""
		}
		if bytes > most {
			most, by = bytes, source
		}
	}
	return most, by
}

// least returns the least of what of finds in the memory of each GPU.
func (r ranks) least(of func(free, total int64) int64) (least int64, err error) {
	for i, d := range r.gpus {
		free, total, err := d.MemInfo()
		if err != nil {
			return 0, err
		}
		if n := of(free, total); i == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// describe returns a function that describes the GPUs by the one that has most memory in use.
func (r ranks) describe() func() protocol.Machine {
	var each []func() protocol.Machine
	for _, d := range r.gpus {
		each = append(each, describe(d))
	}
	return func() (m protocol.Machine) {
		for _, of := range each {
			if one := of(); one.MemoryUsed >= m.MemoryUsed {
				m = one
			}
		}
		m.Name = fmt.Sprintf("%d x %s", len(each), m.Name)
		if r.slow {
			m.Name += ", without peer access"
		}
		return m
	}
}
