package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"reel.internal/reel/client"
)

// metrics counts what the gateway does, for Prometheus. What generators do is read from their status
// at each scrape.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec   // by endpoint and status
	ttft, itl *prometheus.HistogramVec // by model
	tokens    *prometheus.CounterVec   // by model and kind
	streams   prometheus.Gauge
}

const metricsPrefix = "reel_gateway_"

// latencyBuckets are the bounds of times to a token, in seconds: those of the generator's metrics.
var latencyBuckets = []float64{
	0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2,
	0.3, 0.5, 1, 2, 5, 10,
}

// scrapes bounds the scrapes that are answered at once.
const scrapes = 2

// newMetrics returns the metrics of a gateway.
func newMetrics(g *Gateway) *metrics {
	latency := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricsPrefix + name, Help: help, Buckets: latencyBuckets}, []string{"model"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("requests_total", "HTTP requests that have ended, by endpoint and status.", "endpoint", "status"),
		ttft:     latency("time_to_first_token_seconds", "From a request's place in the queue to its first token."),
		itl:      latency("inter_token_latency_seconds", "Between two tokens of an answer."),
		tokens: counter("tokens_total",
			"Tokens of answers that have ended: prompt, cached (of the prompt) and completion.", "model", "kind"),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricsPrefix + "answers_running", Help: "Answers that are being written or waited for."}),
	}
	m.registry.MustRegister(m.requests, m.ttft, m.itl, m.tokens, m.streams, generators{g},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// routesMetrics adds /metrics.
func (g *Gateway) routesMetrics(mux *http.ServeMux) {
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
}

// counted counts the answers of next by the endpoints of muxes. A path that none of them serves is other.
func (m *metrics) counted(next http.Handler, muxes ...*http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(recorder, r)
		m.requests.WithLabelValues(endpointOf(muxes, r), strconv.Itoa(recorder.status)).Inc()
	})
}

// endpointOf returns the path of the endpoint that a request names.
func endpointOf(muxes []*http.ServeMux, r *http.Request) string {
	for _, mux := range muxes {
		_, pattern := mux.Handler(r) // "METHOD /path", "/" for what is not served, or "" for a redirect
		if _, path, found := strings.Cut(pattern, " "); found {
			return strings.TrimSuffix(path, "{$}")
		}
	}
	return "other"
}

// statusRecorder remembers an answer's status.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an [http.ResponseController] find the writer below.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// timed has the times of a's tokens observed.
func (m *metrics) timed(model string, choices int, a answer) *timedAnswer {
	return &timedAnswer{answer: a, m: m, model: model, start: time.Now(), last: make([]time.Time, choices),
		ttft: m.ttft.WithLabelValues(model), itl: m.itl.WithLabelValues(model)}
}

// timedAnswer observes an answer's tokens on their way.
type timedAnswer struct {
	answer
	m         *metrics
	model     string
	start     time.Time
	last      []time.Time // by choice, of its newest token
	ttft, itl prometheus.Observer
}

func (t *timedAnswer) token(choice int, token *client.Token) error {
	now := time.Now()
	if last := t.last[choice]; last.IsZero() {
		t.ttft.Observe(now.Sub(t.start).Seconds())
	} else {
		t.itl.Observe(now.Sub(last).Seconds())
	}
	t.last[choice] = now
	return t.answer.token(choice, token)
}

func (t *timedAnswer) done(choice int, d *client.Done) error {
	for kind, n := range map[string]int{
		"prompt": d.Usage.PromptTokens, "cached": d.Usage.CachedTokens, "completion": d.Usage.CompletionTokens,
	} {
		t.m.tokens.WithLabelValues(t.model, kind).Add(float64(n))
	}
	return t.answer.done(choice, d)
}

// generators collects what the generators report, under Reel's names and under those of vLLM by which
// routers choose a server.
type generators struct{ g *Gateway }

// generatorGauge is a figure of a generator that answers.
type generatorGauge struct {
	desc *prometheus.Desc
	read func(s *client.Status, queued int) float64
}

func newGeneratorGauge(name, help string, read func(*client.Status, int) float64) generatorGauge {
	return generatorGauge{prometheus.NewDesc(name, help, []string{"model_name"}, nil), read}
}

var generatorGauges = []generatorGauge{
	newGeneratorGauge("vllm:num_requests_running", "Requests that hold a slot in the generator's batch.",
		func(s *client.Status, _ int) float64 { return float64(s.Requests.Running) }),
	newGeneratorGauge("vllm:num_requests_waiting", "Requests that wait for a slot, in the generator or in the gateway.",
		func(s *client.Status, queued int) float64 { return float64(s.Requests.Waiting + queued) }),
	newGeneratorGauge("vllm:kv_cache_usage_perc", "The part of the KV pages that requests hold, 0 to 1.",
		func(s *client.Status, _ int) float64 { return kvUse(s) }),
	newGeneratorGauge("vllm:gpu_cache_usage_perc", "The older name of vllm:kv_cache_usage_perc.",
		func(s *client.Status, _ int) float64 { return kvUse(s) }),
}

// kvUse returns the part of the KV pages that requests hold.
func kvUse(s *client.Status) float64 {
	if s.KV.Pages == 0 {
		return 0
	}
	return float64(s.KV.Used) / float64(s.KV.Pages)
}

var (
	readyDesc = prometheus.NewDesc(metricsPrefix+"generator_ready",
		"Generators of the model that can serve, or sleep until the next request.", []string{"model"}, nil)
	queueDesc = prometheus.NewDesc(metricsPrefix+"queue_length",
		"Requests that wait in the gateway for a place at the generator.", []string{"model"}, nil)
	routedDesc = prometheus.NewDesc(metricsPrefix+"routed_total",
		"Requests sent to one of several generators: where their prompt's prefix went, or to the least busy.",
		[]string{"model", "by"}, nil)
	resumedDesc = prometheus.NewDesc(metricsPrefix+"resumed_total",
		"Requests whose generator died while they ran, and that ended as without it, or with an error.",
		[]string{"model", "outcome"}, nil)
	cacheDesc = prometheus.NewDesc("vllm:cache_config_info", "Always 1: the KV cache's tokens per page, and its pages.",
		[]string{"model_name", "block_size", "num_gpu_blocks"}, nil)
)

// Describe lists the metrics.
func (c generators) Describe(to chan<- *prometheus.Desc) {
	to <- readyDesc
	to <- queueDesc
	to <- routedDesc
	to <- resumedDesc
	to <- cacheDesc
	for _, f := range generatorGauges {
		to <- f.desc
	}
}

// Collect asks the generators. One that does not answer in time has no figures but its queue.
func (c generators) Collect(to chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), readyTime)
	defer stop()
	for _, m := range c.g.backends.models(ctx) {
		m.counts.collect(m, to)
		gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{m.name}, labels...)...)
		}
		queued := m.places.queued()
		gauge(queueDesc, float64(queued))
		gauge(readyDesc, float64(m.ready(ctx)))
		s, err := m.status(ctx)
		if err != nil {
			continue
		}
		gauge(cacheDesc, 1, strconv.Itoa(s.KV.PageTokens), strconv.Itoa(s.KV.Pages))
		for _, f := range generatorGauges {
			gauge(f.desc, f.read(s, queued))
		}
	}
}

// collect gives the counts of a model, those of routes if it has several generators.
func (c *groupCounts) collect(m model, to chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n *atomic.Uint64, label string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n.Load()), m.name, label)
	}
	counter(resumedDesc, &c.resumed, "ended")
	counter(resumedDesc, &c.notResumed, "failed")
	if len(m.list) > 1 {
		counter(routedDesc, &c.byPrefix, "prefix")
		counter(routedDesc, &c.byLoad, "load")
	}
}
