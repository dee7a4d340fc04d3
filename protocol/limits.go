package protocol

import "time"

// Bounds of protocol version 1. PROTOCOL.md explains each.
const (
	MaxFrame       = 4 << 20 // bytes of a frame's body
	MaxDepth       = 16      // nested maps and arrays in a frame
	MaxConnections = 128     // connections per user; twice as many per generator; a generator may announce others
	MaxRequests    = 64      // running and queued requests per connection
	MaxQueue       = 512     // queued requests per user; likewise
	MaxStops       = 16      // stop strings per request
	MaxStopBytes   = 256     // bytes of one stop string
	MaxMessages    = 4096    // messages of a conversation
	MaxRoleBytes   = 64      // bytes of a message's role
	MaxUserBytes   = 64      // bytes of the field user
	MaxVariables   = 32      // variables for a chat template
	MaxLogprobs    = 20      // alternatives reported per token
	MaxElements    = 1 << 18 // elements of a list, and therefore tokens of any context
	MaxUndecoded   = 8 << 20 // bytes of frames above 4 KiB being received, per user; twice as many per generator
	MaxUnsent      = 1 << 20 // bytes waiting for a client that does not read
	// MaxVariableBytes bounds the encoded names and values of all variables together.
	MaxVariableBytes = 16 << 10
)

// Times after which a generator closes a connection.
const (
	HelloTimeout = 30 * time.Second // without a frame, before welcome
	FrameTimeout = 30 * time.Second // from a frame's first byte to its last
	StallTimeout = 5 * time.Second  // without the client reading
	// ContendedFrameTimeout replaces FrameTimeout while another frame waits for the
	// bytes that the frame holds.
	ContendedFrameTimeout = 2 * time.Second
	// RoomTimeout bounds a frame's wait for its bytes of MaxUndecoded.
	RoomTimeout = 5 * time.Second
)

// Limits are the bounds that a generator announces in welcome.
type Limits struct {
	Context     int `msgpack:"context" json:"context"`           // tokens of prompt and completion together
	MaxBatch    int `msgpack:"max_batch" json:"max_batch"`       // slots for everybody; one user never holds more
	Vocab       int `msgpack:"vocab" json:"vocab"`               // token ids are below this
	PromptBytes int `msgpack:"prompt_bytes" json:"prompt_bytes"` // bytes of a prompt's text: context × longest token
	Frame       int `msgpack:"frame" json:"frame"`               // bytes of a frame's body
	Requests    int `msgpack:"requests" json:"requests"`         // per connection
	Connections int `msgpack:"connections" json:"connections"`   // per user
	Queue       int `msgpack:"queue" json:"queue"`               // queued requests per user
}
