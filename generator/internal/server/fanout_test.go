package server

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkFanOut measures how the tokens of a step reach as many streams, each on a connection of its own or all on a
// few: the time of the engine's thread for a step, the time from the step's end until the last client has read its
// token, and the processors' time for a token, with that of the clients. Everybody sleeps before a step, as while a
// device computes.
func BenchmarkFanOut(b *testing.B) {
	for _, c := range []struct{ streams, connections int }{{1, 1}, {8, 8}, {64, 64}, {256, 256}, {64, 2}, {256, 8}} {
		b.Run(fmt.Sprintf("streams=%d/connections=%d", c.streams, c.connections), func(b *testing.B) {
			fanOut(b, c.streams, c.connections)
		})
	}
}

// pauseTime is the time between two steps of a benchmark.
const pauseTime = 3 * time.Millisecond

func fanOut(b *testing.B, streams, connections int) {
	f := ready(b, func(o *bounds) { o.connections, o.requests = 1000, 1000 })
	m := *f.phase.model
	m.Limits.Context = b.N + 10
	f.phase.model = &m
	f.engine.allow(0)
	r := newReaders(b)
	for i := range connections {
		c := f.client()
		for id := i; id < streams; id += connections {
			c.send(generate(uint64(1+id), "ab", b.N+2))
		}
		r.add(c.conn)
	}
	f.awaitLive(streams)
	go r.run(streams)
	runtime.LockOSThread() // as the engine's goroutine
	defer runtime.UnlockOSThread()
	f.engine.stepAll()
	<-r.all
	before := processorTime(b)
	var engine time.Duration
	var last []time.Duration
	for range b.N {
		pause := unix.NsecToTimespec(int64(pauseTime))
		_ = unix.Nanosleep(&pause, nil)
		begun := time.Now()
		f.engine.stepAll()
		engine += time.Since(begun)
		last = append(last, (<-r.all).Sub(begun))
	}
	b.StopTimer()
	slices.Sort(last)
	tokens := float64(b.N * streams)
	b.ReportMetric(0, "ns/op") // it is mostly pauses
	b.ReportMetric(float64(engine.Microseconds())/float64(b.N), "engine-µs/step")
	b.ReportMetric(float64(last[len(last)/2].Microseconds()), "last-P50-µs")
	b.ReportMetric(float64(last[len(last)*99/100].Microseconds()), "last-P99-µs")
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/tokens, "cpu-ns/token")
}

// stepAll gives every sequence a token, on the caller's thread.
func (e *fakeEngine) stepAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h, s := range e.live {
		e.step(h, s)
	}
}

// processorTime returns the time that this process has used.
func processorTime(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readers reads what comes to many clients on one thread, so that the clients cost little.
type readers struct {
	t      testing.TB
	epoll  int
	frames map[int32][]byte // by descriptor: a frame that is not complete
	all    chan time.Time   // receives the time at which every client has read another token
}

func newReaders(t testing.TB) *readers {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return &readers{t: t, epoll: fd, frames: map[int32][]byte{}, all: make(chan time.Time, 1)}
}

// add adds a client that has read what came so far.
func (r *readers) add(conn *net.UnixConn) {
	file, err := conn.File()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = file.Close() })
	fd := int(file.Fd())
	err = unix.SetNonblock(fd, true)
	if err == nil {
		err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.frames[int32(fd)] = nil
}

// run counts frames and announces each n-th, until a connection ends.
func (r *readers) run(n int) {
	runtime.LockOSThread()
	events, buffer, got := make([]unix.EpollEvent, 64), make([]byte, 1<<16), 0
	for {
		k, err := unix.EpollWait(r.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		for _, e := range events[:max(0, k)] {
			m, err := unix.Read(int(e.Fd), buffer)
			if m == 0 || err != nil && err != unix.EAGAIN {
				return
			}
			before := got
			got += r.count(e.Fd, buffer[:max(0, m)])
			if got/n > before/n {
				r.all <- time.Now()
			}
		}
	}
}

// count adds bytes that came to a client, and returns how many frames they complete.
func (r *readers) count(fd int32, b []byte) (frames int) {
	b = append(r.frames[fd], b...)
	for len(b) >= frameHeader && len(b) >= frameHeader+int(binary.BigEndian.Uint32(b)) {
		b = b[frameHeader+int(binary.BigEndian.Uint32(b)):]
		frames++
	}
	r.frames[fd] = b
	return frames
}
