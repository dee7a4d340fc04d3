package gateway

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"reel.internal/reel/client/internal/fakegen"
)

// scrape returns the lines of /metrics that begin with Reel's or vLLM's prefix, but for histograms' buckets.
func scrape(t *testing.T, s *server) map[string]string {
	t.Helper()
	status, body := s.get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	values := map[string]string{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "reel_gateway_") || strings.HasPrefix(line, "vllm:") {
			at := strings.LastIndex(line, " ")
			values[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return values
}

// Each request is counted by its endpoint and status, each token is timed, and routers find vLLM's names.
func TestMetrics(t *testing.T) {
	s := serveFake(t, fakegen.Script{Chat: true, Model: "m", Cached: 2, Pieces: []string{"a", "b", "c"}})
	chat := `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	s.post("/v1/chat/completions", chat)
	s.post("/api/chat", chat)
	s.post("/v1/chat/completions", `{"model":"other"}`)
	s.get("/v1/models/some/name")
	for _, path := range []string{"/nothing/here", "//double", "/v1/../nothing", "/%2e%2e/"} {
		s.get(path)
	}
	s.get("/", "Host", "evil.example")
	s.get("/", "Accept", "text/html")
	got := scrape(t, s)
	for name, want := range map[string]string{
		`reel_gateway_requests_total{endpoint="/v1/chat/completions",status="200"}`:   "1",
		`reel_gateway_requests_total{endpoint="/v1/chat/completions",status="404"}`:   "1",
		`reel_gateway_requests_total{endpoint="/api/chat",status="200"}`:              "1",
		`reel_gateway_requests_total{endpoint="/v1/models/{name...}",status="404"}`:   "1",
		`reel_gateway_requests_total{endpoint="other",status="404"}`:                  "4",
		`reel_gateway_requests_total{endpoint="/",status="403"}`:                      "1",
		`reel_gateway_requests_total{endpoint="/",status="200"}`:                      "1",
		`reel_gateway_time_to_first_token_seconds_count{model="m"}`:                   "2",
		`reel_gateway_inter_token_latency_seconds_count{model="m"}`:                   "4",
		`reel_gateway_tokens_total{kind="prompt",model="m"}`:                          "6",
		`reel_gateway_tokens_total{kind="cached",model="m"}`:                          "4",
		`reel_gateway_tokens_total{kind="completion",model="m"}`:                      "6",
		`reel_gateway_answers_running`:                                                "0",
		`reel_gateway_queue_length{model="m"}`:                                        "0",
		`reel_gateway_generator_ready{model="m"}`:                                     "1",
		`vllm:num_requests_running{model_name="m"}`:                                   "1",
		`vllm:num_requests_waiting{model_name="m"}`:                                   "2",
		`vllm:kv_cache_usage_perc{model_name="m"}`:                                    "0.03125",
		`vllm:gpu_cache_usage_perc{model_name="m"}`:                                   "0.03125",
		`vllm:cache_config_info{block_size="16",model_name="m",num_gpu_blocks="256"}`: "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
	}
}

// Requests that wait in the gateway count as waiting, and as its queue.
func TestMetricsOfQueue(t *testing.T) {
	g, socket := fake(t, fakegen.Script{Model: "m", Ending: fakegen.Hang})
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Drain: time.Millisecond})
	ask := func() { go s.do(s.request("POST", "/v1/completions", `{"model":"m","prompt":"x"}`)) }
	ask()
	generated(t, g)
	places := s.backends.list[0].places
	places.grow(1 - places.offered)
	ask()
	ask()
	for end := time.Now().Add(10 * time.Second); places.queued() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d wait", places.queued())
		}
	}
	got := scrape(t, s)
	for name, want := range map[string]string{
		`reel_gateway_queue_length{model="m"}`: "2", `reel_gateway_answers_running`: "3", `vllm:num_requests_waiting{model_name="m"}`: "4",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// The address for health serves /metrics without a key; the main one wants it.
func TestMetricsWantTheKey(t *testing.T) {
	_, socket := fake(t, fakegen.Script{})
	keys, err := parseKeys(strings.Repeat("k", 32))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Generators: []Generator{{Socket: socket}}, Keys: keys, HealthListen: []string{"127.0.0.1:0"}})
	if status, _ := s.get("/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
	if status, _ := s.get("/metrics", "Authorization", "Bearer "+strings.Repeat("k", 32)); status != http.StatusOK {
		t.Errorf("with the key: %d", status)
	}
	s.url = "http://" + s.Addresses()[1]
	if status, _ := s.get("/metrics"); status != http.StatusOK {
		t.Errorf("on the address for health: %d", status)
	}
}

// A generator that is gone takes no scrape with it.
func TestMetricsWithoutGenerator(t *testing.T) {
	_, socket := fake(t, fakegen.Script{Model: "m"})
	s := serve(t, Options{Generators: []Generator{{Name: "m", Socket: socket}, {Name: "n", Socket: "/nowhere/g.sock"}}})
	got := scrape(t, s)
	if got[`reel_gateway_generator_ready{model="n"}`] != "0" || got[`reel_gateway_generator_ready{model="m"}`] != "1" {
		t.Errorf("%v", got)
	}
	if _, there := got[`vllm:num_requests_running{model_name="n"}`]; there {
		t.Error("figures of a generator that does not answer")
	}
}

// Names and help follow Prometheus's rules, but for vLLM's.
func TestMetricsNames(t *testing.T) {
	s := serveFake(t, fakegen.Script{})
	_, body := s.get("/metrics")
	problems, err := promlint.New(bytes.NewReader([]byte(body))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "vllm:") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
