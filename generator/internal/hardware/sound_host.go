//go:build !fault

package hardware

import "reel.internal/reel/kernels/device"

// hostOptions returns the defaults. A build with the tag fault returns options with which the
// device can hang.
func hostOptions() device.HostOptions { return device.HostOptions{} }
