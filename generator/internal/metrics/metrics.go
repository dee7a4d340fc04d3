// Package metrics serves the generator's metrics to Prometheus. Numbers that the engine and
// the server count anyway are read from a status at each scrape; latencies are observed by
// the requests' goroutines. The engine's thread does no work for metrics.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/protocol"
)

// Metrics holds all metrics of one generator. It implements server.Observer.
type Metrics struct {
	registry *prometheus.Registry

	ttft, itl, queue, request prometheus.Histogram
	requests, errors          *prometheus.CounterVec
	prompt, generated         prometheus.Counter
	connections               prometheus.Counter
}

// Upper bounds of the histograms' buckets, in seconds. Those of latencies grow by a factor of
// about 1.5 up to 0.5 s.
var (
	latencyBuckets = []float64{
		0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2,
		0.3, 0.5, 1, 2, 5, 10,
	}
	requestBuckets = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250}
)

// New returns the metrics of a generator. status is called at each scrape, and so is
// readGPU, which is nil if there is no GPU to read.
func New(status func() *protocol.Status, readGPU func() []gpu.Reading) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ttft: histogram("time_to_first_token_seconds",
			"From receipt of a request to its first token.", latencyBuckets),
		itl: histogram("inter_token_latency_seconds",
			"Between two tokens of a request, as they reach the server. Tokens that arrive together share the time; "+
				"those that arrive with the first token are left out.", latencyBuckets),
		queue: histogram("queue_seconds",
			"From receipt of a request to its slot in the batch.", latencyBuckets),
		request: histogram("request_seconds",
			"From receipt of a request to its end.", requestBuckets),
		requests: vector("requests_total",
			"Requests that have ended, by finish reason or error code.", "finish"),
		errors: vector("errors_total",
			"Errors sent to clients, by code: of requests, of the protocol and of connections.", "code"),
		prompt:      counter("prompt_tokens_total", "Prompt tokens of requests that have ended."),
		generated:   counter("generated_tokens_total", "Tokens of completions that have ended."),
		connections: counter("connections_total", "Connections that were accepted."),
	}
	m.registry.MustRegister(m.ttft, m.itl, m.queue, m.request, m.requests, m.errors,
		m.prompt, m.generated, m.connections, collector{status, readGPU})
	return m
}

const prefix = "reel_"

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
}

func vector(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{label})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
}

// Connected counts a connection.
func (m *Metrics) Connected() { m.connections.Inc() }

// Error counts an error sent to a client.
func (m *Metrics) Error(code string) { m.errors.WithLabelValues(code).Inc() }

// Tokens observes n tokens of a request that arrived together, a time after the token before
// them.
func (m *Metrics) Tokens(n int, after time.Duration) {
	for range n {
		m.itl.Observe(after.Seconds() / float64(n))
	}
}

// Request observes the end of a request. Phases that it did not reach are 0, and are not
// observed.
func (m *Metrics) Request(finish string, u protocol.Usage, t protocol.Timing) {
	m.requests.WithLabelValues(finish).Inc()
	m.prompt.Add(float64(u.PromptTokens))
	m.generated.Add(float64(u.CompletionTokens))
	for _, o := range []struct {
		histogram prometheus.Histogram
		ms        float64
	}{{m.ttft, t.TTFTMS}, {m.queue, t.QueueMS}, {m.request, t.TotalMS}} {
		if o.ms > 0 {
			o.histogram.Observe(o.ms / 1000)
		}
	}
}
