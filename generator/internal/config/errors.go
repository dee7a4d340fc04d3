package config

import (
	"errors"
	"fmt"
)

// Kinds of errors that end a start or a command.
var (
	ErrUsage  = errors.New("usage")               // the command line is malformed
	ErrConfig = errors.New("configuration")       // the operator has to change a setting, a file or the machine
	ErrNoGPU  = errors.New("no GPU")              // the GPU or its driver is missing
	ErrNoRoom = errors.New("out of memory")       // the model does not fit the device's memory
	ErrSignal = errors.New("stopped by a signal") // a clean stop
)

// WaitsForDevice begins the activity of a start that waits because other programs hold the device or its memory.
const WaitsForDevice = "waiting for the GPU"

// ofKind is an error that also matches kind under [errors.Is], without the kind's text.
type ofKind struct {
	error
	kind error
}

// Is reports whether target is the kind.
func (e ofKind) Is(target error) bool { return target == e.kind }

// Unwrap returns the error itself.
func (e ofKind) Unwrap() error { return e.error }

// OfKind returns err with its text, so that errors.Is reports kind too.
func OfKind(err, kind error) error { return ofKind{err, kind} }

// Refuse formats an error as [fmt.Errorf] does and marks it with kind.
func Refuse(kind error, format string, args ...any) error {
	return ofKind{fmt.Errorf(format, args...), kind}
}
