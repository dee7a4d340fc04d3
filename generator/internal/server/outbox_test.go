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
)

// slowConn is a connection whose peer takes room bytes, one more after more, and
// then nothing.
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

// All that waits goes out in one Write.
func TestOutboxWritesAllAtOnce(t *testing.T) {
	conn := &slowConn{room: 1 << 30}
	o := newOutbox(conn, 1<<20, time.Hour)
	for range 100 {
		o.add([]byte("frame"))
	}
	o.finish()
	if err := o.write(); err != nil || conn.writes != 1 {
		t.Errorf("%d writes, %v", conn.writes, err)
	}
}

func TestOutboxKeepsOrder(t *testing.T) {
	near, far := net.Pipe()
	o := newOutbox(near, 1<<20, time.Hour)
	go func() {
		for range 1000 {
			o.add([]byte("a"))
			o.add([]byte("b"))
		}
		o.finish()
	}()
	go func() { _ = o.write(); _ = near.Close() }()
	got, err := io.ReadAll(far)
	if want := strings.Repeat("ab", 1000); err != nil || string(got) != want {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
}

func TestOutboxOverflow(t *testing.T) {
	o := newOutbox(&slowConn{}, 10, time.Hour)
	if o.add(make([]byte, 100)) {
		t.Error("an empty outbox takes one message, however large")
	}
	if !o.add([]byte("x")) {
		t.Error("the limit is passed")
	}
	o.cut([]byte("last"))
	if string(o.pending) != "last" || o.add([]byte("x")) || string(o.pending) != "last" {
		t.Errorf("after the cut %q waits", o.pending)
	}
}

// A write is given up after the stall without progress; a byte of progress
// starts the time again. The clock is synctest's.
func TestOutboxPatience(t *testing.T) {
	for name, c := range map[string]struct {
		closing bool
		want    time.Duration
	}{
		"open":    {false, 3*time.Second + 5*time.Second}, // the last byte is taken at 3 s
		"closing": {true, 5 * time.Second},                // whatever is taken
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				conn := &slowConn{room: 1, more: begun.Add(2500 * time.Millisecond)}
				o := newOutbox(conn, 1<<20, 5*time.Second)
				o.add(make([]byte, 10))
				if c.closing {
					o.finish()
				}
				err := o.write()
				if took := time.Since(begun); !errors.Is(err, errStalled) || took < c.want || took > c.want+1500*time.Millisecond {
					t.Errorf("gave up after %v: %v", took, err)
				}
			})
		})
	}
}

// Whoever waits for room is let go when the connection is gone.
func TestAwaitRoomEnds(t *testing.T) {
	o := newOutbox(&slowConn{}, 10, time.Millisecond)
	o.add(make([]byte, 8))
	woken := make(chan bool)
	go func() { woken <- o.awaitRoom() }()
	if err := o.write(); !errors.Is(err, errStalled) {
		t.Errorf("got %v", err)
	}
	if <-woken {
		t.Error("there is room in an outbox that is closed")
	}
}
