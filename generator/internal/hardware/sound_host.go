//go:build !fault

package hardware

import "reel.internal/reel/kernels/device"

// hostPatience is the patience of simulated ranks: that of [device.NewHostRanks].
const hostPatience = 0

// hostOptions returns the defaults. A build with the tag fault returns options with which the
// device can hang.
func hostOptions() device.HostOptions { return device.HostOptions{} }
