package server

import (
	"errors"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// asError returns the error that a client is told for err.
func asError(err error) *protocol.Error {
	var e *protocol.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, engine.ErrShutdown):
		return protocol.Errorf(protocol.CodeShutdown, "send it again once the generator is back",
			"the generator stopped before the request finished")
	case errors.Is(err, engine.ErrDraining):
		return errDraining()
	case errors.Is(err, engine.ErrBusy):
		return protocol.Errorf(protocol.CodeBusy, "try again in a moment", "the generator's queue is full")
	case errors.Is(err, engine.ErrDevice):
		return protocol.Errorf(protocol.CodeDeviceFailed, "repeat the request once the generator is back",
			"the device failed; the generator ends")
	case errors.Is(err, engine.ErrNumeric):
		return protocol.Errorf(protocol.CodeInternal,
			"suspect the model's weights: try another copy of its checkpoint, or another model", "%v", err)
	case errors.Is(err, engine.ErrFormat):
		return protocol.Errorf(protocol.CodeFormatFailed, "send it again; if it fails again, simplify the format", "%v", err)
	case errors.Is(err, engine.ErrTooLong):
		return protocol.Errorf(protocol.CodePromptTooLong, "shorten the prompt", "the prompt does not fit the context")
	case errors.Is(err, engine.ErrTooManyBiases):
		return protocol.Errorf(protocol.CodeBadRequest, "leave some of logit_bias out", "%v", err)
	}
	return protocol.Errorf(protocol.CodeInternal, "see the generator's log", "%v", err)
}

func errDraining() *protocol.Error {
	return protocol.Errorf(protocol.CodeDraining, "connect again in a moment",
		"the generator is stopping and takes no new requests")
}
