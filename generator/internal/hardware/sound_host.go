//go:build !fault

package hardware

import "reel/kernels/device"

// hostOptions are the defaults: only a build with the tag fault hangs.
func hostOptions() device.HostOptions { return device.HostOptions{} }
