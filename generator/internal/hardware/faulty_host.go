//go:build fault

package hardware

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"reel/kernels/device"
)

// hostOptions has the host device hang for good from a SIGUSR2 on, in the work of
// a stream that comes next: a build for tests.
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
