package server

import (
	"sync/atomic"

	"reel.internal/reel/protocol"
)

// counts are the requests since the server's start, by their end. The engine cannot count
// them: it does not see refused requests, nor that a cancel came from a stop string.
type counts struct {
	finished, cancelled, failed, refused atomic.Uint64
}

// fill sets the fields of r that the server counts.
func (c *counts) fill(r *protocol.Requests) {
	r.Finished, r.Cancelled = c.finished.Load(), c.cancelled.Load()
	r.Failed, r.Refused = c.failed.Load(), c.refused.Load()
}

// ended counts a request by its finish reason, or as failed.
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
