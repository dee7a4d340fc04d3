package logging

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

const patience = 20 * time.Second // for expected events; no passing test waits this long

// stallingFile is a file that blocks while a test holds its lock.
type stallingFile struct {
	sync.Mutex
	bytes.Buffer
}

func (g *stallingFile) Write(p []byte) (int, error) {
	g.Lock()
	defer g.Unlock()
	return g.Buffer.Write(p)
}

// text returns the bytes written since the last call.
func (g *stallingFile) text() string {
	g.Lock()
	defer g.Unlock()
	defer g.Reset()
	return g.String()
}

// awaitDrained waits until q has written all lines.
func awaitDrained(t *testing.T, q *Queue) {
	t.Helper()
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("lines are still queued")
	}
}

// within fails the test if f blocks.
func within(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s blocks", name)
	}
}

// Write does not wait for a blocked file; Flush waits a second. The file's reader gets every
// line up to a gap, the size of the gap, and later lines.
func TestStalledFile(t *testing.T) {
	files := map[string]func(*testing.T) (read, write *os.File){"pipe": pipe, "terminal": terminal, "socket": socket}
	for name, open := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write := open(t)
			q := NewQueue(write)
			const written = 20 * maxLines // more than the file's buffer and the queue hold
			within(t, "Write", func() {
				for i := range written {
					fmt.Fprintf(q, "%d %s\n", i, strings.Repeat("x", 200))
				}
			})
			start := time.Now()
			within(t, "Flush", q.Flush)
			if took := time.Since(start); took < flushTime {
				t.Errorf("Flush ended after %v", took)
			}
			lines := bufio.NewScanner(read)
			count := readLines(t, lines)
			if left := readReport(t, lines); left != written-count || left == 0 {
				t.Errorf("%d of %d lines, left_out is %d", count, written, left)
			}
			fmt.Fprintln(q, "later")
			if !lines.Scan() || lines.Text() != "later" {
				t.Errorf("then %q, %v", lines.Text(), lines.Err())
			}
		})
	}
}

// readLines reads lines 0, 1, 2, … up to the report and returns their number.
func readLines(t *testing.T, lines *bufio.Scanner) (n int) {
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "{") {
			return n
		}
		if !strings.HasPrefix(lines.Text(), fmt.Sprint(n, " x")) {
			t.Fatalf("line %d is %.20q", n, lines.Text())
		}
		n++
	}
	t.Fatal("no report", lines.Err())
	return 0
}

// readReport returns left_out of the report, the current line.
func readReport(t *testing.T, lines *bufio.Scanner) (leftOut int) {
	_, count, found := strings.Cut(lines.Text(), `"left_out":`)
	_, err := fmt.Sscan(count, &leftOut)
	if !found || err != nil || !strings.Contains(lines.Text(), `"msg":"log lines were dropped"`) {
		t.Fatalf("the report is %s", lines.Text())
	}
	return leftOut
}

// A queue holds 1,024 lines and 1 MiB, whichever is less.
func TestBounds(t *testing.T) {
	for _, c := range []struct{ size, fit int }{{1, maxLines}, {maxBytes / 16, 16}, {maxBytes, 1}, {maxBytes + 1, 0}} {
		var g stallingFile
		q := NewQueue(&g)
		line := make([]byte, c.size)
		g.Lock()
		for range 2 * maxLines {
			_, _ = q.Write(line)
		}
		if lines, bytes := q.held(); lines != c.fit || bytes != c.fit*c.size {
			t.Errorf("%d lines of %d bytes are held, want %d", lines, c.size, c.fit)
		}
		g.Unlock()
		awaitDrained(t, q)
		if lines, bytes := q.held(); lines != 0 || bytes != 0 {
			t.Errorf("%d lines and %d bytes are still held", lines, bytes)
		}
		text := strings.TrimLeft(g.text(), "\x00")
		dropped := 0
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			dropped += readReport(t, lines)
		}
		if dropped != 2*maxLines-c.fit {
			t.Errorf("%d lines of %d bytes were left out, want %d", dropped, c.size, 2*maxLines-c.fit)
		}
	}
}

// held returns the number of queued lines and their bytes.
func (q *Queue) held() (lines, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines), q.bytes
}

// Lines stay in order, and each is written or counted once, while the file stalls at random.
func TestNoLineIsLost(t *testing.T) {
	var g stallingFile
	q := NewQueue(&g)
	next, dropped := 0, 0
	for range 20 {
		stalls, first := rand.IntN(3) == 0, next
		if stalls {
			g.Lock()
		}
		for range rand.IntN(3 * maxLines) {
			fmt.Fprintf(q, "%d x\n", next)
			next++
		}
		if stalls {
			g.Unlock()
		}
		awaitDrained(t, q)
		lines := bufio.NewScanner(strings.NewReader(g.text()))
		last := first - 1
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "{") {
				left := readReport(t, lines)
				dropped += left
				last += left
				continue
			}
			last++
			if lines.Text() != fmt.Sprint(last, " x") {
				t.Fatalf("%q, want line %d", lines.Text(), last)
			}
		}
		if last != next-1 {
			t.Fatalf("line %d is the last, want %d", last, next-1)
		}
	}
	t.Logf("%d lines, %d dropped", next, dropped)
}

// The lines of several goroutines are written whole, and each goroutine's in order.
func TestManyWriters(t *testing.T) {
	const writers, lines = 8, maxLines / 8
	var g stallingFile
	q := NewQueue(&g)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range lines {
				fmt.Fprintf(q, "%d %d\n", w, i)
			}
		})
	}
	all.Wait()
	within(t, "Flush", q.Flush)
	var next [writers]int
	for line := range strings.Lines(g.text()) {
		var w, i int
		if _, err := fmt.Sscanf(line, "%d %d\n", &w, &i); err != nil || i != next[w] {
			t.Fatalf("%q: %v", line, err)
		}
		next[w]++
	}
	for w, n := range next {
		if n != lines {
			t.Errorf("writer %d: %d lines", w, n)
		}
	}
}

// failingFile is a file that returns err, if it is not nil. EAGAIN is returned once, after
// half of a line.
type failingFile struct {
	stallingFile
	err error
}

func (f *failingFile) Write(p []byte) (int, error) {
	if f.err == nil {
		return f.stallingFile.Write(p)
	}
	if errors.Is(f.err, syscall.EAGAIN) {
		f.err = nil
		p, err := p[:len(p)/2], error(syscall.EAGAIN)
		n, _ := f.stallingFile.Write(p)
		return n, err
	}
	return 0, f.err
}

// Lines that fail, for example on a full disk, are counted and reported before the next
// line that is written.
func TestFailingFile(t *testing.T) {
	f := &failingFile{err: syscall.ENOSPC}
	q := NewQueue(f)
	for i := range 7 {
		fmt.Fprintln(q, i)
		awaitDrained(t, q)
	}
	f.err = nil
	fmt.Fprintln(q, "later")
	awaitDrained(t, q)
	if text := f.text(); !strings.Contains(text, `"left_out":7`) || !strings.HasSuffix(text, "}\nlater\n") {
		t.Errorf("got %s", text)
	}
}

// A file in non-blocking mode gets the rest of a line when it has room.
func TestNonblockingFile(t *testing.T) {
	f := &failingFile{err: syscall.EAGAIN}
	q := NewQueue(f)
	fmt.Fprintln(q, "a line")
	awaitDrained(t, q)
	if text := f.text(); text != "a line\n" {
		t.Errorf("got %q", text)
	}
}

// A progress bar's frames cannot fill the queue, and dropped frames are not counted.
func TestFrames(t *testing.T) {
	var g stallingFile
	q := NewQueue(&g)
	g.Lock()
	for range 10 * maxLines {
		fmt.Fprint(q.Frames(), "\rframe")
	}
	fmt.Fprintln(q, "line")
	g.Unlock()
	awaitDrained(t, q)
	if text := g.text(); strings.Count(text, "frame") != maxFrames || !strings.HasSuffix(text, "frameline\n") {
		t.Errorf("%d frames, then %q", strings.Count(text, "frame"), text[max(0, len(text)-20):])
	}
}

// The report has the log's own format.
func TestReportFormat(t *testing.T) {
	var g stallingFile
	q := NewQueue(&g)
	New(q, Settings{Level: "error", Format: "console"})
	_, _ = q.Write(make([]byte, maxBytes+1))
	awaitDrained(t, q)
	if text := g.text(); !strings.Contains(text, "WRN log lines were dropped left_out=1\n") {
		t.Errorf("got %q", text)
	}
}

// BenchmarkLog compares a log call through the queue with one that writes to the file.
func BenchmarkLog(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	call := func(w io.Writer) func() {
		log := zerolog.New(w).With().Timestamp().Logger()
		return func() { log.Info().Int("conn", 7).Int("n_prompt", 120).Float64("ttft_ms", 1.25).Msg("request") }
	}
	b.Run("direct", func(b *testing.B) {
		log := call(zerolog.SyncWriter(null))
		b.ReportAllocs()
		for b.Loop() {
			log()
		}
	})
	b.Run("queue", func(b *testing.B) {
		q := NewQueue(null)
		log := call(q)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%(maxLines/2) == 0 { // no line is dropped, which would be cheap
				b.StopTimer()
				q.Flush()
				b.StartTimer()
			}
			log()
		}
		if q.leftOut > 0 {
			b.Error("lines were dropped")
		}
	})
}
