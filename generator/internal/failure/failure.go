// Package failure translates an error that ends a generator for clients and for the shell.
package failure

import (
	"errors"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/unixsocket"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// Exit codes, as in sysexits.h.
const (
	ExitFailure  = 1
	ExitUsage    = 64
	ExitTempFail = 75 // a later start can succeed
	ExitConfig   = 78
)

// ExitCode returns the exit code of a program that ends with err.
func ExitCode(err error) int {
	switch {
	case errors.Is(err, config.ErrUsage):
		return ExitUsage
	case errors.Is(err, unixsocket.ErrLocked), // its owner starts or drains
		errors.Is(err, weights.ErrChanged): // the next start loads the new files
		return ExitTempFail
	case errors.Is(err, config.ErrConfig):
		return ExitConfig
	}
	return ExitFailure
}

// Explain returns err, which ends the generator, as an error of the protocol, with advice.
func Explain(err error) *protocol.Error {
	why := func(code, hint string) *protocol.Error { return protocol.Errorf(code, hint, "%v", err) }
	switch {
	case errors.Is(err, weights.ErrChanged):
		return why(protocol.CodeModelChanged,
			"repeat the request once the generator is back; "+
				"to replace a model that is served, rename new files into place")
	case errors.Is(err, config.ErrNoGPU):
		return why(protocol.CodeGPUAbsent, "see nvidia-smi and reel doctor, or serve with --device host")
	case errors.Is(err, device.ErrBusy):
		return why(protocol.CodeGPUBusy, "end the programs that nvidia-smi shows on the GPU, "+
			"or ask for less with --max-seq-len and --max-batch; then start the generator again")
	case errors.Is(err, device.ErrSticky), errors.Is(err, engine.ErrDevice):
		return why(protocol.CodeDeviceFailed, "repeat the request once the generator is back; "+
			"if it fails again, see the kernel's log for Xid")
	case errors.Is(err, config.ErrNoRoom), errors.Is(err, device.ErrOutOfMemory):
		return why(protocol.CodeOutOfMemory, "raise the limit that binds, lower --max-seq-len, --max-batch, "+
			"--host-cache or --graph-memory, or serve a smaller model: see reel-generator plan")
	case errors.Is(err, config.ErrConfig):
		return why(protocol.CodeConfiguration, "correct the setting, and start the generator again")
	}
	return why(protocol.CodeInternal, "see the generator's log")
}
