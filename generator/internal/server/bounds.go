package server

import (
	"time"

	"reel/protocol"
)

// bounds are a server's guards. Tests lift one at a time, to show that it is
// the guard that refuses.
type bounds struct {
	connections int           // of one user; of all users twice as many
	requests    int           // of one connection
	largeText   int           // bytes of a text that has to wait for its turn to be tokenized
	tokenizers  int           // large texts that are tokenized at once
	unsent      int           // bytes that wait for a client that does not read
	undecoded   int64         // bytes received and not yet decoded, over all connections
	silence     time.Duration // before welcome, from frame to frame
	frame       time.Duration // from a frame's first byte to its last
	stall       time.Duration // of a write without progress
	reject      time.Duration // for the error to a connection that is not taken
}

func defaultBounds() bounds {
	return bounds{
		connections: protocol.MaxConnections,
		requests:    protocol.MaxRequests,
		largeText:   16 << 10,
		tokenizers:  2,
		unsent:      protocol.MaxUnsent,
		undecoded:   protocol.MaxUndecoded,
		silence:     protocol.HelloTimeout,
		frame:       protocol.FrameTimeout,
		stall:       protocol.StallTimeout,
		reject:      100 * time.Millisecond,
	}
}
