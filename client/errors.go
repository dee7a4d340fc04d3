package client

import "errors"

// Errors of this package. The generator's own are *Error, found with errors.As.
var (
	// ErrNoGenerator: nothing serves at the socket. It wraps what was seen at
	// each path that was tried.
	ErrNoGenerator = errors.New("no generator")
	// ErrNoAnswer: what took the connection does not talk. It comes with ErrNoGenerator.
	ErrNoAnswer = errors.New("what took the connection does not answer")
	// ErrDenied: this user may not connect to the generator's socket.
	ErrDenied = errors.New("permission denied")
	// ErrConfig: the socket's path can't be one.
	ErrConfig = errors.New("bad configuration")
	// ErrConnectionLost: the generator went away, or said what can't be
	// understood. It wraps the cause, which may be an *Error.
	ErrConnectionLost = errors.New("connection to the generator lost")
	// ErrSlowLoop: the loop over a request's tokens left too much unread, 64 MiB with
	// the other loops of the Client. The request is cancelled; other requests go on.
	ErrSlowLoop = errors.New("the loop takes its tokens too slowly: take them sooner, or ask for fewer")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("client closed")
)
