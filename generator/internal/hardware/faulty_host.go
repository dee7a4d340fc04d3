//go:build fault

package hardware

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"reel.internal/reel/kernels/device"
)

// hostPatience is the patience of simulated ranks: that of GPUs.
const hostPatience = 500 * time.Millisecond

// hostOptions returns options for tests: after SIGUSR2 the next work of a stream hangs.
func hostOptions() device.HostOptions {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR2)
	return device.HostOptions{Delay: func() time.Duration {
		select {
		case <-asked:
			fmt.Fprintln(os.Stderr, "hangs")
			select {}
		default:
			return 0
		}
	}}
}
