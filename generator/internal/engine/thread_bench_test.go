package engine

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/kernels/device"
)

// BenchmarkThread measures the time of the engine's thread for a decode step, on a device whose steps take almost
// none: forming, writing and launching it, reading its records and handing out tokens to sinks that drop them. What
// the thread does to sleep and wake is part of it; on a GPU it polls instead. Ops run on other threads.
func BenchmarkThread(b *testing.B) {
	for _, rows := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) { measureThread(b, rows) })
	}
}

func measureThread(b *testing.B, rows int) {
	const warm = 50 // tokens of each sequence before the measurement
	c := nanoConfig()
	c.Context = warm + b.N + 8
	o := nano()
	o.Context, o.MaxBatch, o.PageTokens, o.Chunk, o.MaxQueue = c.Context, rows, 16, 256, rows
	o.Pages = rows * (c.Context/o.PageTokens + 1)
	o.MaxGraphs, o.GraphMemory = 64, 1<<20
	e, err := tryBuildModel(b, c, device.HostOptions{}, o, nil)
	if err != nil {
		b.Fatal(err)
	}
	t := &threadTimer{from: warm, to: warm + b.N, ended: make(chan struct{})}
	for i := range rows {
		var s Sink = dropped{}
		if i == rows-1 {
			s = t
		}
		if _, err := e.Submit(&Request{Tokens: []int32{1}, MaxTokens: warm + b.N + 2, IgnoreEOS: true, Sink: s,
			Received: time.Now(), Connection: uint64(i)}); err != nil {
			b.Fatal(err)
		}
	}
	e.run()
	<-t.ended
	if err := e.finish(); err != nil {
		b.Fatal(err)
	}
	perStep := float64(t.time.Nanoseconds()) / float64(b.N)
	b.ReportMetric(0, "ns/op") // it includes the device
	b.ReportMetric(perStep/1000, "thread-µs/step")
	b.ReportMetric(perStep/float64(rows), "thread-ns/token")
}

// dropped is a sink for nobody.
type dropped struct{}

func (dropped) Token(Token)   {}
func (dropped) Finish(Finish) {}

// threadTimer measures the time that the engine's thread, which calls it, uses between two tokens.
type threadTimer struct {
	from, to int
	time     time.Duration
	ended    chan struct{}
}

func (t *threadTimer) Token(token Token) {
	switch token.Index {
	case t.from:
		t.time = -threadTime()
	case t.to:
		t.time += threadTime()
	}
}

func (t *threadTimer) Finish(Finish) { close(t.ended) }

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}
