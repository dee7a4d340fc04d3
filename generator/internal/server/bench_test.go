package server

import (
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// BenchmarkToken measures the path of one token from the engine to a waiting client: text,
// frame, socket.
func BenchmarkToken(b *testing.B) {
	f := ready(b, nil)
	m := *f.phase.model
	m.Limits.Context = b.N + 2
	f.phase.model = &m
	f.engine.allow(0)
	c := f.client()
	_ = c.conn.SetDeadline(time.Time{})
	c.send(generate(1, "ab", b.N+1))
	f.awaitLive(1)
	b.ReportAllocs()
	for range b.N {
		f.engine.allow(1)
		expect[protocol.Token](c)
	}
}
