package server

import (
	"strings"
	"testing"

	"reel.internal/reel/protocol"
)

// Served and refused requests are logged at info, or at debug with QuietRequests; a failed
// request is logged at info in both cases.
func TestRequestLog(t *testing.T) {
	for quiet, want := range map[bool][3]int{false: {1, 1, 1}, true: {0, 0, 1}} {
		f := newFixture(t, nil)
		f.opts.QuietRequests = quiet
		f.serve()
		f.SetReady(f.model())
		c := f.client()
		c.ask(generate(1, "abc", 2))
		c.send(generate(2, "abc", -1))
		c.wantError(protocol.CodeBadRequest)
		f.engine.allow(0)
		c.send(generate(3, "abc", 2))
		for live := 0; live == 0; live, _ = f.engine.counts() {
		}
		f.stop()
		for i, line := range []string{`"req_id":1,`, `"req_id":2,`, `"req_id":3,`} {
			if n := strings.Count(f.log.String(), line); n != want[i] {
				t.Errorf("quiet %t: %d lines with %s, want %d: %s", quiet, n, line, want[i], f.log.String())
			}
		}
	}
}
