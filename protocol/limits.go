package protocol

import "time"

// Bounds of protocol version 1. PROTOCOL.md explains each.
const (
	MaxFrame       = 4 << 20 // bytes of a frame's body
	MaxDepth       = 16      // nested maps and arrays in a frame
	MaxConnections = 128     // connections of a user; a generator holds twice as many
	MaxRequests    = 64      // running and queued requests of one connection
	MaxQueue       = 512     // requests of a user that wait for a place in the batch; of all users twice as many
	MaxStops       = 16      // stop strings of a request
	MaxStopBytes   = 256     // bytes of one stop string
	MaxMessages    = 4096    // of a conversation
	MaxRoleBytes   = 64      // of a message's role
	MaxLogprobs    = 20      // alternatives reported at each token
	MaxElements    = 1 << 18 // elements of a list, and so tokens of any context
	MaxUndecoded   = 8 << 20 // bytes of frames above 4 KiB in reception, of a user; a generator holds twice as many
	MaxUnsent      = 1 << 20 // bytes that wait for a client that does not read
)

// How long a generator waits before it closes a connection.
const (
	HelloTimeout = 30 * time.Second // for a frame, before welcome
	FrameTimeout = 30 * time.Second // from a frame's first byte to its last
	StallTimeout = 5 * time.Second  // for a client to read
	// ContendedFrameTimeout takes the place of FrameTimeout while another frame
	// waits for the bytes of the first.
	ContendedFrameTimeout = 2 * time.Second
	// RoomTimeout is how long a frame waits for room in reception.
	RoomTimeout = 5 * time.Second
)

// Limits are the bounds a generator states in welcome.
type Limits struct {
	Context     int `msgpack:"context" json:"context"`           // tokens of prompt and completion together
	MaxBatch    int `msgpack:"max_batch" json:"max_batch"`       // sequences of one user that run at once
	Vocab       int `msgpack:"vocab" json:"vocab"`               // token ids are below this
	PromptBytes int `msgpack:"prompt_bytes" json:"prompt_bytes"` // bytes of a prompt's text: context × longest token
	Frame       int `msgpack:"frame" json:"frame"`               // bytes of a frame's body
	Requests    int `msgpack:"requests" json:"requests"`         // a connection
	Connections int `msgpack:"connections" json:"connections"`   // of a user
	Queue       int `msgpack:"queue" json:"queue"`               // waiting requests of a user
}
