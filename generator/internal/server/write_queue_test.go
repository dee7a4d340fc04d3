package server

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reel.internal/reel/protocol"
)

// slowConn is a connection to a peer that takes room bytes, a further byte after the time
// more, and then nothing.
type slowConn struct {
	net.Conn
	room     int
	more     time.Time
	writes   int
	deadline time.Time
}

func (c *slowConn) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *slowConn) Write(b []byte) (int, error) {
	c.writes++
	if !c.more.IsZero() && time.Now().After(c.more) {
		c.room, c.more = c.room+1, time.Time{}
	}
	n := min(len(b), c.room)
	c.room -= n
	if n < len(b) {
		time.Sleep(time.Until(c.deadline))
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// All queued frames are sent in one Write.
func TestWriteQueueWritesAllAtOnce(t *testing.T) {
	conn := &slowConn{room: 1 << 30}
	q := newWriteQueue(conn, 1<<20, time.Hour)
	for range 100 {
		q.add([]byte("frame"))
	}
	q.finish()
	if err := q.run(); err != nil || conn.writes != 1 {
		t.Errorf("%d writes, %v", conn.writes, err)
	}
}

func TestWriteQueueKeepsOrder(t *testing.T) {
	near, far := net.Pipe()
	q := newWriteQueue(near, 1<<20, time.Hour)
	go func() {
		for range 1000 {
			q.add([]byte("a"))
			q.add([]byte("b"))
		}
		q.finish()
	}()
	go func() { _ = q.run(); _ = near.Close() }()
	got, err := io.ReadAll(far)
	if want := strings.Repeat("ab", 1000); err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestWriteQueueOverflow(t *testing.T) {
	q := newWriteQueue(&slowConn{}, 10, time.Hour)
	if q.add(make([]byte, 100)) {
		t.Error("an empty queue refused a large message")
	}
	if !q.add([]byte("x")) {
		t.Error("the queue exceeds its limit")
	}
	q.cut([]byte("last"))
	if string(q.queued) != "last" || q.add([]byte("x")) || string(q.queued) != "last" {
		t.Errorf("after the cut %q is queued", q.queued)
	}
}

// A cut drops no rest of a frame that the kernel took in part: the client finds the end of it, and then the last frame.
func TestWriteQueueCutsBetweenFrames(t *testing.T) {
	for name, start := range map[string]func(q *writeQueue, frames []byte){
		"add":  func(q *writeQueue, frames []byte) { q.add(frames) },
		"push": func(q *writeQueue, frames []byte) { q.put(frames); q.push() },
		"push twice": func(q *writeQueue, frames []byte) {
			q.put(frames)
			q.push()
			q.put(frames)
			q.push()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ends := socketPair(t)
			q := newWriteQueue(ends[0], 16<<20, time.Hour)
			q.inline = newSocketWriter(ends[0])
			start(q, frameOf(t, strings.Repeat("x", 2<<20))) // more than the kernel takes
			if q.empty() {
				t.Fatal("the kernel took all")
			}
			q.put(frameOf(t, "dropped"))
			q.cut(frameOf(t, "last"))
			go func() { _ = q.run(); _ = ends[0].Close() }()
			if got := lastText(t, ends[1]); got != "last" {
				t.Errorf("the last frame has %q", got)
			}
		})
	}
}

// frameOf returns a frame with a text.
func frameOf(t *testing.T, text string) []byte {
	t.Helper()
	frame, err := protocol.AppendFrame(nil, &protocol.Token{Text: text})
	must(t, err)
	return frame
}

// lastText reads the frames of r to its end and returns the text of the last one.
func lastText(t *testing.T, r io.Reader) (text string) {
	t.Helper()
	for frames := (protocol.FrameReader{R: r}); ; {
		body, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return text
		}
		must(t, err)
		msg, err := protocol.DecodeReply(body)
		must(t, err)
		if text = msg.(*protocol.Token).Text; text == "dropped" {
			t.Error("a frame came that was queued whole")
		}
	}
}

// A write ends after the stall time without progress; a byte of progress starts the time
// again, unless the queue is closing. The clock is synctest's.
func TestWriteQueueStalls(t *testing.T) {
	for name, c := range map[string]struct {
		closing bool
		want    time.Duration
	}{
		"open":    {false, 3*time.Second + 5*time.Second}, // the last byte is taken at 3 s
		"closing": {true, 5 * time.Second},                // with or without progress
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				conn := &slowConn{room: 1, more: begun.Add(2500 * time.Millisecond)}
				q := newWriteQueue(conn, 1<<20, 5*time.Second)
				q.add(make([]byte, 10))
				if c.closing {
					q.finish()
				}
				err := q.run()
				took := time.Since(begun)
				if !errors.Is(err, errStalled) || took < c.want || took > c.want+1500*time.Millisecond {
					t.Errorf("ended after %v: %v", took, err)
				}
			})
		})
	}
}

// awaitRoom returns when the connection is gone.
func TestAwaitRoomEnds(t *testing.T) {
	q := newWriteQueue(&slowConn{}, 10, time.Millisecond)
	q.add(make([]byte, 8))
	woken := make(chan bool)
	go func() { woken <- q.awaitRoom() }()
	if err := q.run(); !errors.Is(err, errStalled) {
		t.Errorf("got %v", err)
	}
	if <-woken {
		t.Error("a closed queue has room")
	}
}
