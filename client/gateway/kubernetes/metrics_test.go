package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	config "sigs.k8s.io/gateway-api-inference-extension/apix/config/v1alpha1"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	extractors "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	sources "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
	"sigs.k8s.io/yaml"
)

const patience = time.Minute

func intText(n int32) string { return fmt.Sprint(n) }

// start starts a program of the folder in REEL_BIN, and ends it with the test.
func start(t *testing.T, name string, args ...string) *bufio.Reader {
	t.Helper()
	bin := os.Getenv("REEL_BIN")
	if bin == "" {
		t.Fatal("REEL_BIN names no folder with reel-generator and reel-gateway: run make kubernetes-check")
	}
	c := exec.Command(filepath.Join(bin, name), args...)
	c.Env, c.Stderr = []string{"PATH=" + os.Getenv("PATH")}, os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait()
	})
	return bufio.NewReader(out)
}

// serve starts a generator and a gateway, and returns the addresses of its API and of its metrics.
func serve(t *testing.T) (api, metrics string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reel") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := dir + "/generator.sock"
	start(t, "reel-generator", "--device", "host", "--log-level", "warn", "--socket", socket)
	lines := start(t, "reel-gateway", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0",
		"--generator", "model="+socket)
	for _, to := range []*string{&api, &metrics} {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		*to = line[strings.LastIndexByte(line, ' ')+1 : len(line)-1]
	}
	return api, metrics
}

// picker returns the endpoint picker's own scraper as pool/endpoint-picker.yaml configures it.
func picker(t *testing.T) (datalayer.PollingDataSource, datalayer.Extractor) {
	t.Helper()
	text := build(t, "pool")["ConfigMap"].(*core.ConfigMap).Data["endpoint-picker.yaml"]
	var c config.EndpointPickerConfig
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	made := map[string]plugin.Plugin{}
	for _, p := range c.Plugins {
		factory := map[string]func(string, json.RawMessage, plugin.Handle) (plugin.Plugin, error){
			sources.MetricsDataSourceType:   sources.MetricsDataSourceFactory,
			extractors.MetricsExtractorType: extractors.CoreMetricsExtractorFactory,
		}[p.Type]
		if factory == nil {
			continue // a scorer
		}
		one, err := factory(p.Type, p.Parameters, nil)
		if err != nil {
			t.Fatal(err)
		}
		made[p.Type] = one
	}
	return made[sources.MetricsDataSourceType].(datalayer.PollingDataSource),
		made[extractors.MetricsExtractorType].(datalayer.Extractor)
}

// The endpoint picker reads the load of a real gateway by the pods' labels.
func TestPickerReadsTheGauges(t *testing.T) {
	api, address := serve(t)
	labels := build(t, "pool")["Deployment"].(*apps.Deployment).Spec.Template.Labels
	source, extractor := picker(t)
	pod := datalayer.NewEndpoint(&datalayer.EndpointMetadata{MetricsHost: address, Labels: labels}, datalayer.NewMetrics())
	scrape := func() *datalayer.Metrics {
		data, err := source.Poll(t.Context(), pod)
		if err == nil {
			err = extractor.Extract(t.Context(), data, pod)
		}
		if err != nil {
			t.Logf("a scrape: %v", err) // until the generator serves
			return datalayer.NewMetrics()
		}
		return pod.GetMetrics()
	}
	await(t, "the size of the cache", func() bool { return scrape().CacheBlockSize == 16 && scrape().CacheNumBlocks > 0 })

	ctx, stop := context.WithCancel(t.Context())
	for range 70 { // more than a batch of the embedded model
		go ask(ctx, api)
	}
	await(t, "running and waiting requests", func() bool {
		m := scrape()
		return m.RunningRequestsSize > 0 && m.WaitingQueueSize > 0 && m.KVCacheUsagePercent > 0 && m.KVCacheUsagePercent <= 1
	})
	stop()
	await(t, "no requests", func() bool {
		m := scrape()
		return m.RunningRequestsSize == 0 && m.WaitingQueueSize == 0
	})
}

// With vLLM's settings the picker misses a gauge of adapters at each scrape: so the pods have an engine of their own.
func TestPodsOfAnotherEngineLackAGauge(t *testing.T) {
	_, address := serve(t)
	source, extractor := picker(t)
	pod := datalayer.NewEndpoint(&datalayer.EndpointMetadata{MetricsHost: address,
		Labels: map[string]string{extractors.DefaultEngineTypeLabelKey: "vllm"}}, datalayer.NewMetrics())
	await(t, "a complaint about adapters", func() bool {
		data, err := source.Poll(t.Context(), pod)
		if err == nil {
			err = extractor.Extract(t.Context(), data, pod)
		}
		return err != nil && strings.Contains(err.Error(), "lora")
	})
}

// ask asks for a long completion and reads it to its end, or to that of ctx.
func ask(ctx context.Context, address string) {
	body := `{"prompt": "KING:", "max_tokens": 900, "ignore_eos": true, "stream": true}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return
	}
	if reply, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
	}
}

// await returns when holds does.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
