package server

import (
	"testing"

	"reel.internal/reel/protocol"
)

// The engine expects requests from the first one's frame until the reader waits for the client, whatever comes.
func TestRequestsAreExpectedWhileTheyAreRead(t *testing.T) {
	frame := func(m any) []byte {
		b, err := protocol.AppendFrame(nil, m)
		must(t, err)
		return b
	}
	f := ready(t, nil)
	noneExpected := func(after string) {
		t.Helper()
		eventually(t, "nothing is expected after "+after, func() bool { return f.engine.reading.Load() == 0 })
	}
	one := frame(generate(1, "ab", 1))
	c := f.client()
	c.raw(append(one, frame(generate(2, "ab", 1))...))
	for range 2 { // an answer's two frames
		for range 2 {
			if _, err := c.read(); err != nil {
				t.Fatal(err)
			}
		}
	}
	noneExpected("two requests at once")
	if n, came := f.engine.expected.Load(), f.engine.foreseenSubmits(); n != 1 || came != 2 {
		t.Errorf("%d calls of Expect, during which %d requests came; want 1 and 2", n, came)
	}
	c.raw(append(one, one[:len(one)/2]...))
	expect[protocol.Token](c)
	expect[protocol.Done](c)
	noneExpected("half a request")
	_ = c.conn.Close()

	c = f.client()
	c.send(generate(1, "", 1))
	c.wantError(protocol.CodeBadRequest)
	noneExpected("a request that was refused")
	before := f.engine.expected.Load()
	c.raw(append(frame(generate(2, "", 1)), 0, 0, 0, 0)) // and a frame of no bytes, which ends the connection
	eventually(t, "the request is read", func() bool { return f.engine.expected.Load() > before })
	noneExpected("a connection's end")
}
