//go:build !cuda && fault

package hardware

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"reel.internal/reel/kernels/device"
)

// A start in tests waits only briefly for what another generator has claimed.
func init() { Patience.Limit = time.Second }

// claim takes the file that REEL_FAULT_CLAIM names until the end of the process, as a model takes a GPU that has no room
// for another one. Without the variable it does nothing.
func claim() error {
	path := os.Getenv("REEL_FAULT_CLAIM")
	if path == "" || claimed != nil {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return fmt.Errorf("%w: another generator has %s", device.ErrBusy, path)
	}
	claimed = file
	return nil
}

// claimed is the open file, whose lock ends with it.
var claimed *os.File
