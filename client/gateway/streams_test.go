package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/gateway/internal/plays"
	"reel.internal/reel/protocol"
)

// maxStreamBytes bounds the memory of a stream in TestManyStreams: of the gateway, and in the same
// process of the HTTP client and of the stand-in for a generator.
const maxStreamBytes = 192 << 10

// TestManyStreams: many streams run at once, in bounded memory, and the end of each reaches the
// generator. REEL_LONG=1: 1,000 streams.
func TestManyStreams(t *testing.T) {
	n := 50
	if os.Getenv("REEL_LONG") != "" {
		n = 1000
	}
	script := plays.Script("scripted")
	script.Slots = 2048
	var cancelled atomic.Int64
	script.Cancelled = func(*protocol.Generate) { cancelled.Add(1) }
	s := serveFake(t, script)
	before := memory()
	ctx, stop := context.WithCancel(t.Context())
	var running, ended sync.WaitGroup
	for range n {
		running.Add(1)
		ended.Go(func() { readSome(ctx, s, running.Done) })
	}
	running.Wait()
	taken := (memory() - before) / int64(n)
	t.Logf("%d streams: %d KiB each", n, taken>>10)
	if taken > maxStreamBytes {
		t.Errorf("a stream takes %d bytes, more than %d", taken, maxStreamBytes)
	}
	stop()
	ended.Wait()
	for end := time.Now().Add(time.Minute); cancelled.Load() < int64(n) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if got := cancelled.Load(); got != int64(n) {
		t.Errorf("%d of %d requests were cancelled", got, n)
	}
}

// memory returns the bytes that are in use after a collection.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// readSome opens a stream, calls begun after three pieces of text, and reads on until ctx ends.
func readSome(ctx context.Context, s *server, begun func()) {
	events, err := openStream(ctx, s, "endless 50ms")
	if err != nil {
		s.t.Error(err)
		begun()
		return
	}
	defer events.Close()
	for range 3 {
		events.next()
	}
	begun()
	_, _ = io.Copy(io.Discard, events)
}

// eventReader reads the texts of a stream.
type eventReader struct {
	io.Closer
	*bufio.Reader
}

// openStream asks for a chat in pieces.
func openStream(ctx context.Context, s *server, content string) (*eventReader, error) {
	r := s.request("POST", "/v1/chat/completions",
		`{"model": "scripted", "stream": true, "messages": [{"role": "user", "content": "`+content+`"}]}`)
	answer, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s", answer.Status)
	}
	return &eventReader{answer.Body, bufio.NewReader(answer.Body)}, nil
}

// next returns the next piece of text, or "" at the stream's end.
func (e *eventReader) next() string {
	for {
		line, err := e.ReadString('\n')
		if err != nil {
			return ""
		}
		_, text, ok := strings.Cut(line, `"delta":{"content":"`)
		if text, _, _ = strings.Cut(text, `"`); ok && text != "" {
			return text
		}
	}
}

// BenchmarkPacedToken measures the time from a generator's token to its client, at 1,000 tokens a second:
// unlike in BenchmarkTokenOverHTTP everybody sleeps in between.
func BenchmarkPacedToken(b *testing.B) {
	_, socket := fake(b, plays.Script("scripted"))
	b.Run("socket", func(b *testing.B) {
		c, err := client.Dial(b.Context(), client.Options{Socket: socket})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		next, stop := iter.Pull2(c.Generate(b.Context(), client.Request{Prompt: "clock", MaxTokens: new(1 << 17)}))
		defer stop()
		reportDelays(b, func() string { t, _, _ := next(); return t.Text })
	})
	b.Run("http", func(b *testing.B) {
		s := serve(b, Options{Generators: []Generator{{Socket: socket}}})
		events, err := openStream(b.Context(), s, "clock")
		if err != nil {
			b.Fatal(err)
		}
		defer events.Close()
		reportDelays(b, events.next)
	})
}

// reportDelays reads texts of the play "clock". It reports the times since they were made, and those
// between two of them.
func reportDelays(b *testing.B, next func() string) {
	var delays, between []time.Duration
	last := time.Now()
	for b.Loop() {
		made, err := strconv.ParseInt(next(), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		delays, between = append(delays, now.Sub(time.Unix(0, made))), append(between, now.Sub(last))
		last = now
	}
	report(b, "delay", delays)
	report(b, "itl", between)
}

// report reports quantiles in microseconds.
func report(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/1e3, name+"-p50-us")
	b.ReportMetric(float64(all[len(all)*99/100])/1e3, name+"-p99-us")
}
