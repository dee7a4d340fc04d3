package client

import "errors"

// Errors of this package. Errors that the generator sends are *[Error]: use errors.As.
var (
	// ErrNoGenerator: nothing serves at the socket. It wraps the finding at each path
	// that was tried.
	ErrNoGenerator = errors.New("no generator")
	// ErrNoAnswer: a process holds the socket, and no answer comes. It hangs, does not speak the protocol, or is a
	// service manager whose generator has not taken the connection yet. Such an error is ErrNoGenerator too.
	ErrNoAnswer = errors.New("the socket's process does not answer")
	// ErrSleeping: the generator has ended because nobody asked, and a request will start it
	// again. Only [ReadStatus], and [Dial] with NoWake, return it, without a connection.
	ErrSleeping = errors.New("the generator sleeps: the next request starts it")
	// ErrDenied: this user may not connect to the generator's socket.
	ErrDenied = errors.New("permission denied")
	// ErrConfig: the configured path can't be a socket's.
	ErrConfig = errors.New("bad configuration")
	// ErrConnectionLost: the generator went away, or sent something that can't be
	// understood. It wraps the cause, which may be an *Error.
	ErrConnectionLost = errors.New("connection to the generator lost")
	// ErrSlowLoop: the loop over a request's tokens left too much unread: 64 MiB,
	// counting all loops of the Client. The request is cancelled; other requests go on.
	ErrSlowLoop = errors.New("the loop takes its tokens too slowly: take them sooner, or ask for fewer")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("client closed")
)
