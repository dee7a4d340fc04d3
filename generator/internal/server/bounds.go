package server

import (
	"time"

	"reel/protocol"
)

// bounds are a server's guards. Tests lift one at a time, to show that it is
// the guard that refuses.
type bounds struct {
	connections    int           // of one user; of all users twice as many
	requests       int           // of one connection
	userTexts      int           // texts of one user that are tokenized at once
	largeText      int           // bytes; a text of more is large
	tokenizers     int           // large texts that are tokenized at once, of all users
	smallTexts     int           // other texts that are
	userRenders    int           // prompts of one user that are made of conversations at once
	renders        int           // such prompts of all users
	unsent         int           // bytes that wait for a client that does not read
	undecoded      int           // bytes of frames in reception of one user; of all users twice as many
	silence        time.Duration // before welcome, from frame to frame
	frame          time.Duration // from a frame's first byte to its last
	contendedFrame time.Duration // the same, while another frame waits for its bytes
	roomForFrame   time.Duration // that a frame waits for bytes
	stall          time.Duration // of a write without progress
	reject         time.Duration // for the error to a connection that is not taken
}

func defaultBounds() bounds {
	return bounds{
		connections:    protocol.MaxConnections,
		requests:       protocol.MaxRequests,
		userTexts:      1,
		largeText:      16 << 10,
		tokenizers:     tokenizers(),
		smallTexts:     tokenizers(),
		userRenders:    1,
		renders:        2, // chat.Template starts a process for each
		unsent:         protocol.MaxUnsent,
		undecoded:      protocol.MaxUndecoded,
		silence:        protocol.HelloTimeout,
		frame:          protocol.FrameTimeout,
		contendedFrame: protocol.ContendedFrameTimeout,
		roomForFrame:   protocol.RoomTimeout,
		stall:          protocol.StallTimeout,
		reject:         100 * time.Millisecond,
	}
}

// mayConnect reports whether a user with mine connections, of all in the whole
// server, may open one more. A user may hold no more places than it leaves free.
// The last quarter of the places is for users with few: then users with many
// cannot fill the server together.
func (b *bounds) mayConnect(mine, all int) bool {
	places := 2 * b.connections
	free := places - all
	if mine < min(b.connections, max(1, b.connections/fewConnections)) {
		return free > 0
	}
	return mine < min(b.connections, free) && free > places/4
}

// fewConnections is the part of a user's bound that counts as few: 4 of 128.
const fewConnections = 32
