package server

import (
	"sync/atomic"

	"reel/protocol"
)

// counts are requests since the server started, by how they ended. The engine
// cannot count them: it sees neither those that are refused before it, nor that
// a cancel came from a stop string.
type counts struct {
	finished, cancelled, failed, refused atomic.Uint64
}

func (c *counts) fill(r *protocol.Requests) {
	r.Finished, r.Cancelled = c.finished.Load(), c.cancelled.Load()
	r.Failed, r.Refused = c.failed.Load(), c.refused.Load()
}

// ended counts a request by what it was told at the end: a reason or a failure.
func (c *counts) ended(reason string, failed bool) {
	switch {
	case failed:
		c.failed.Add(1)
	case reason == protocol.FinishCancelled:
		c.cancelled.Add(1)
	default:
		c.finished.Add(1)
	}
}
