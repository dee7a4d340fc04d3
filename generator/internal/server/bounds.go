package server

import (
	"time"

	"reel.internal/reel/protocol"
)

// bounds are a server's bounds. Tests lift one at a time, to show that it is this guard
// that refuses.
type bounds struct {
	connections int // of a user; twice as many of all users
	requests    int // of a connection

	userTexts  int // texts of a user that are tokenized at once
	largeText  int // bytes; a longer text is large
	largeTexts int // large texts of all users that are tokenized at once
	smallTexts int // other texts of all users that are tokenized at once

	userRenders int // chat templates rendered at once for a user
	renders     int // and for all users

	userCompiles int // formats compiled at once for a user
	compiles     int // and for all users

	unsent    int // bytes that a client has not read
	undecoded int // bytes of a user's frames in reception; twice as many of all users

	helloTimeout          time.Duration // before welcome: to the first byte of each frame
	frameTimeout          time.Duration // from a frame's first byte to its last
	contendedFrameTimeout time.Duration // the same, while another frame waits for memory
	budgetTimeout         time.Duration // a frame's wait for memory
	stallTimeout          time.Duration // of a write without progress
	rejectTimeout         time.Duration // to send the error to a rejected connection
}

func defaultBounds() bounds {
	return bounds{
		connections:           protocol.MaxConnections,
		requests:              protocol.MaxRequests,
		userTexts:             1,
		largeText:             16 << 10,
		largeTexts:            tokenizers(),
		smallTexts:            tokenizers(),
		userRenders:           1,
		renders:               2, // chat.Template starts a process for each
		userCompiles:          1,
		compiles:              2, // each in a process of its own
		unsent:                protocol.MaxUnsent,
		undecoded:             protocol.MaxUndecoded,
		helloTimeout:          protocol.HelloTimeout,
		frameTimeout:          protocol.FrameTimeout,
		contendedFrameTimeout: protocol.ContendedFrameTimeout,
		budgetTimeout:         protocol.RoomTimeout,
		stallTimeout:          protocol.StallTimeout,
		rejectTimeout:         100 * time.Millisecond,
	}
}

// fewConnections divides a user's bound: users with fewer than the quotient have few
// connections (4 of 128).
const fewConnections = 32

// mayConnect reports whether a user with n of all open connections may open one more. A
// user may hold at most half of the connections that others leave. The last quarter is
// for users with few connections, so that users with many cannot use up all of them
// together.
func (b *bounds) mayConnect(n, all int) bool {
	most := 2 * b.connections
	free := most - all
	if n < min(b.connections, max(1, b.connections/fewConnections)) {
		return free > 0
	}
	return n < min(b.connections, free) && free > most/4
}
