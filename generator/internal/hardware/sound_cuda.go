//go:build cuda && !fault

package hardware

import (
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// spoiled returns d. A build with the tag fault returns a device that signals can spoil.
func spoiled(d *gpu.Device) device.Device { return d }
