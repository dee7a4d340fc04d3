//go:build linux && cuda

package gpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// serveModel starts a generator for the checkpoint in the folder REEL_BENCH_MODEL, or for the embedded model, and
// returns a client.
func serveModel(b *testing.B, args ...string) (*generator, *client.Client) {
	b.Helper()
	if dir := os.Getenv("REEL_BENCH_MODEL"); dir != "" {
		args = append(args, "--model", dir, "--max-seq-len", "4096")
	}
	g := start(b, "reel-generator", append([]string{"--max-batch", "8", "--log-level", "warn"}, args...)...)
	c := g.dial()
	if c == nil {
		b.FailNow()
	}
	return g, c
}

// logStart logs the time and memory that the graphs of the start took.
func logStart(b *testing.B, g *generator) {
	p := g.status().Graphs
	b.Logf("start: %d graphs in %.2f s, each %.2f ms (P50) and %d bytes",
		p.Precaptured, p.CaptureS, p.CaptureMedianMS, p.GraphBytes)
}

// share returns the p-quantile of sorted times.
func share(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// BenchmarkGPUStart measures the lattice of the start: number of graphs, time and memory.
func BenchmarkGPUStart(b *testing.B) {
	for range b.N {
		for _, counts := range []string{"auto", "1-512"} {
			g, _ := serveModel(b, "--precapture", counts)
			logStart(b, g)
			p := g.status().Graphs
			b.ReportMetric(p.CaptureMedianMS, "ms-each/"+counts)
			b.ReportMetric(float64(p.GraphBytes), "bytes-each/"+counts)
			g.stop()
		}
	}
}

// BenchmarkGPUMissingGraph measures how much later the first token comes if the prompt's graph is missing: the step
// runs padded or op by op, and nothing is captured meanwhile.
func BenchmarkGPUMissingGraph(b *testing.B) {
	for range b.N {
		live := firstTokens(b, "--precapture", "10,50,100,200,400")
		padded := firstTokens(b, "--precapture", "16,66,114,210,402", "--roller", "off")
		eager := firstTokens(b, "--precapture", "1", "--roller", "off")
		for i, n := range prompts {
			b.Logf("prompt of %3d: TTFT P50 %6.2f ms with its graph, %6.2f padded, %6.2f eager",
				n, ms(live[i]), ms(padded[i]), ms(eager[i]))
			b.ReportMetric(ms(padded[i]-live[i]), "ms-more-padded/"+strconv.Itoa(n))
			b.ReportMetric(ms(eager[i]-live[i]), "ms-more-eager/"+strconv.Itoa(n))
		}
	}
}

// BenchmarkGPUEmbeddings measures a model for embeddings, such as one of the shape qwen3-embedding-0.6b: the median
// time of a text and the texts a second, by the number of tokens and by how many texts are asked for at once.
func BenchmarkGPUEmbeddings(b *testing.B) {
	if os.Getenv("REEL_BENCH_MODEL") == "" {
		b.Skip("wants REEL_BENCH_MODEL, a model for embeddings")
	}
	g, _ := serveModel(b, "--max-batch", "256")
	clients := make([]*client.Client, 256/protocol.MaxRequests) // a connection runs no more
	for i := range clients {
		clients[i] = g.dial()
	}
	for range b.N {
		for _, n := range []int{10, 128, 512} {
			for _, workers := range []int{1, 16, 256} {
				all, rate := embedMany(b, clients, n, workers)
				b.Logf("%3d tokens, %3d texts at once: %6.2f ms (P50), %.0f texts a second", n, workers,
					ms(share(all, 0.5)), rate)
				b.ReportMetric(rate, fmt.Sprintf("texts-a-second/%d-of-%d", workers, n))
			}
		}
	}
}

// embedMany embeds texts of n tokens, `workers` of them at once. It returns the time of each in ascending order, and
// texts a second.
func embedMany(b *testing.B, clients []*client.Client, n, workers int) ([]time.Duration, float64) {
	texts := max(32, 4*workers)
	all := make([]time.Duration, texts)
	begun := time.Now()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < texts; i += workers {
				asked := time.Now()
				embedRandom(b, clients[worker%len(clients)], n, i)
				all[i] = time.Since(asked)
			}
		})
	}
	group.Wait()
	rate := float64(texts) / time.Since(begun).Seconds()
	slices.Sort(all)
	return all, rate
}

// embedRandom embeds n tokens, of which no prefix was embedded before.
func embedRandom(b *testing.B, c *client.Client, n, seed int) {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7919 + seed*104729) % 30000)
	}
	if _, err := c.Embed(b.Context(), client.EmbedRequest{Tokens: tokens, Cache: "off"}); err != nil {
		b.Error(err)
	}
}

// prompts are the prompt lengths that firstTokens measures.
var prompts = []int{10, 50, 100, 200, 400}

// firstTokens returns the median times to the first token of prompts.
func firstTokens(b *testing.B, args ...string) (medians []time.Duration) {
	g, c := serveModel(b, args...)
	logStart(b, g)
	for _, n := range prompts {
		var all []time.Duration
		for range 22 {
			begun := time.Now()
			if _, err := stream(c, n, 1, func(at time.Time) { all = append(all, at.Sub(begun)) }); err != nil {
				b.Fatal(err)
			}
		}
		all = all[2:] // the first ones warm up
		slices.Sort(all)
		medians = append(medians, share(all, 0.5))
	}
	b.Logf("%v: %+v", args, g.status().Steps.Graphs)
	g.stop()
	return medians
}

// span is a part of a benchmark's time.
type span struct{ from, to time.Time }

// within returns the times between consecutive tokens that lie in the spans, sorted.
func within(tokens []time.Time, spans []span) (all []time.Duration) {
	for i, at := range tokens[1:] {
		inside := func(s span) bool { return tokens[i].After(s.from) && at.Before(s.to) }
		if slices.ContainsFunc(spans, inside) {
			all = append(all, at.Sub(tokens[i]))
		}
	}
	slices.Sort(all)
	return all
}

// BenchmarkGPURolling measures the time between a stream's tokens while the roller captures, evicts and destroys
// graphs, and without a roller. Prompts of new shapes keep coming; between two of them the stream is alone with the
// roller for about the time of a capture.
func BenchmarkGPURolling(b *testing.B) {
	for range b.N {
		for _, roller := range []string{"on", "off"} {
			g, c := serveModel(b, "--precapture", "1", "--max-graphs", "40", "--roller", roller)
			logStart(b, g)
			var tokens []time.Time
			ended := make(chan error, 1)
			go func() {
				_, err := stream(c, 8, 4000, func(at time.Time) { tokens = append(tokens, at) })
				ended <- err
			}()
			quiet := during(func() { time.Sleep(time.Second) })
			prefill, alone := missing(b, c)
			b.Logf("%+v", g.status().Graphs)
			g.signal(syscall.SIGTERM)
			g.signal(syscall.SIGTERM) // the second signal ends the long stream
			<-ended
			g.end()
			report(b, roller+", undisturbed", within(tokens, []span{quiet}))
			report(b, roller+", beside prefill", within(tokens, prefill))
			report(b, roller+", between prompts", within(tokens, alone))
		}
	}
}

// missing sends prompts of 2 to 80 tokens, over and over, each often enough to request a capture, and returns the
// times at which they ran and the times at which none did.
func missing(b *testing.B, c *client.Client) (prefill, alone []span) {
	for n := range 3 * 79 {
		prefill = append(prefill, during(func() {
			for range 2 {
				if _, err := stream(c, 2+n%79, 1, func(time.Time) {}); err != nil {
					b.Fatal(err)
				}
			}
		}))
		alone = append(alone, during(func() { time.Sleep(25 * time.Millisecond) }))
	}
	return prefill, alone
}

// during runs do and returns the time that it took.
func during(do func()) span {
	from := time.Now()
	do()
	return span{from, time.Now()}
}

// report logs and reports the percentiles of sorted times between tokens.
func report(b *testing.B, name string, itl []time.Duration) {
	if len(itl) == 0 {
		b.Errorf("no tokens: %s", name)
		return
	}
	p50, p99 := share(itl, 0.5), share(itl, 0.99)
	b.Logf("ITL, roller %-20s %5d tokens: P50 %.3f ms, P99 %.3f, max %.3f",
		name, len(itl), ms(p50), ms(p99), ms(itl[len(itl)-1]))
	unit := "P99/P50-" + strings.NewReplacer(", ", "-", " ", "-").Replace(name)
	b.ReportMetric(float64(p99)/float64(p50), unit)
}
