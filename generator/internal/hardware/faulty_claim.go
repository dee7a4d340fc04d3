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
// for another one. With REEL_FAULT_SHARES too it takes a part of the room, beside others that do. Without the first
// variable it does nothing.
func claim() error {
	path := os.Getenv("REEL_FAULT_CLAIM")
	if path == "" || claimed != nil {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	how := syscall.LOCK_EX
	if os.Getenv("REEL_FAULT_SHARES") != "" {
		how = syscall.LOCK_SH
	}
	if err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return fmt.Errorf("%w: another generator has %s", device.ErrBusy, path)
	}
	claimed = file
	return nil
}

// claimed is the open file, whose lock ends with it.
var claimed *os.File
